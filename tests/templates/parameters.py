"""Parameters of a template as CloudFormation checks them before it creates anything, which moto does not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


class Refused(Exception):
    """A value that CloudFormation refuses. `str()` is its message."""


def check(template: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    """Return the values of all parameters, defaults included. Raises `Refused`."""
    values = {}
    for name, parameter in template["Parameters"].items():
        if name not in given and "Default" not in parameter:
            raise Refused(f"{name}: no value")
        values[name] = given.get(name, str(parameter.get("Default")))
        _check_value(name, parameter, values[name])
    if unknown := given.keys() - values.keys():
        raise Refused(f"unknown: {sorted(unknown)}")
    for name, rule in template.get("Rules", {}).items():
        if _holds(rule.get("RuleCondition", True), values):
            for assertion in rule["Assertions"]:
                if not _holds(assertion["Assert"], values):
                    raise Refused(f"{name}: {assertion['AssertDescription']}")
    return values


def _check_value(name: str, parameter: Mapping[str, Any], value: str) -> None:
    if "AllowedValues" in parameter and value not in map(str, parameter["AllowedValues"]):
        raise Refused(f"{name}: {value!r} is not one of the allowed values")
    if "AllowedPattern" in parameter and not re.fullmatch(parameter["AllowedPattern"], value):
        raise Refused(f"{name}: {value!r} does not have the form {parameter['AllowedPattern']}")
    if parameter["Type"] == "Number" and not (
        parameter.get("MinValue", float("-inf")) <= float(value) <= parameter.get("MaxValue", float("inf"))
    ):
        raise Refused(f"{name}: {value} is out of range")


def _holds(condition: Any, values: Mapping[str, str]) -> bool:
    """Evaluate a rule's condition. Functions that our templates do not use are missing."""
    if isinstance(condition, bool):
        return condition
    ((function, given),) = condition.items()
    if function == "Fn::Not":
        return not _holds(given[0], values)
    if function in {"Fn::And", "Fn::Or"}:
        # AWS accepts at most ten conditions.
        assert 2 <= len(given) <= 10
        return (all if function == "Fn::And" else any)(_holds(each, values) for each in given)
    if function == "Fn::Contains":
        return _value(given[1], values) in [_value(each, values) for each in given[0]]
    assert function == "Fn::Equals", function
    return _value(given[0], values) == _value(given[1], values)


def _value(value: Any, values: Mapping[str, str]) -> str:
    return values[value["Ref"]] if isinstance(value, dict) else str(value)
