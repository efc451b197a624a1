"""Reader of the files of docker/monitoring: the alerts, and the queries of the dashboards."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from harness.prometheus import CONFIGURATION

DASHBOARDS = CONFIGURATION.parent / "grafana" / "dashboards"
# Form of an alert's expression: a measured value, a comparison and a number.
_COMPARISON = re.compile(r"^(?P<measured>.*\S)\s+(?:<|>)\s+(?P<number>[\d.e]+)$", re.DOTALL)
# Value that Grafana inserts: at least four times the scrape interval.
_VARIABLES = {"$__rate_interval": "10s"}
_NOT_A_METRIC = frozenset(
    {
        "sum", "max", "min", "count", "by", "rate", "increase", "changes", "histogram_quantile", "time", "vector", "or",
    }
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Alert:
    """One alert."""

    name: str
    expression: str
    measured: str  # its expression without the comparison at the end


@dataclasses.dataclass(frozen=True)
class Panel:
    """One panel of a dashboard."""

    dashboard: str
    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]  # (expression, legend of its series)


def alerts() -> list[Alert]:
    """Return the alerts in the order of the file."""
    return [
        Alert(rule["alert"], rule["expr"], _measured(rule["expr"])) for rule in _rules("alerts.yml") if "alert" in rule
    ]


def recorded() -> dict[str, str]:
    """Return the expressions of the recording rules, by name."""
    return {rule["record"]: rule["expr"] for rule in _rules("recording.yml")}


def panels() -> list[Panel]:
    """Return the panels of all dashboards."""
    return [
        Panel(
            path.stem,
            panel["title"],
            panel["fieldConfig"]["defaults"]["unit"],
            tuple((_filled_in(target["expr"]), target["legendFormat"]) for target in panel["targets"]),
        )
        for path in sorted(DASHBOARDS.glob("*.json"))
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]
    ]


def metrics_of(expression: str) -> set[str]:
    """Return the names of metrics in an expression."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|on|group_left) \([^)]*\)', " ", expression)
    return set(re.findall(r"(?<![\w:.])[a-zA-Z_:][\w:]*", bare)) - _NOT_A_METRIC


def tested() -> dict[str, set[str]]:
    """Return the alerts of the promtool tests: those that fire, and those that do not."""
    found: dict[str, set[str]] = {"fires": set(), "does not": set()}
    for case in yaml.safe_load((CONFIGURATION / "tests" / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]:
        (test,) = case["alert_rule_test"]
        found["fires" if test.get("exp_alerts") else "does not"].add(test["alertname"])
    return found


def _rules(name: str) -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load((CONFIGURATION / "rules" / name).read_text(encoding="utf-8"))["groups"]:
        yield from group["rules"]


def _measured(expression: str) -> str:
    found = _COMPARISON.match(expression)
    assert found is not None, f"not a measurement, a comparison and a number: {expression}"
    return found["measured"]


def _filled_in(expression: str) -> str:
    for variable, value in _VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, expression
    return expression
