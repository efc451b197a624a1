"""Reader of the cases below `tests/data/api/messages`: valid bodies, and the errors of changed ones.

A file is `{"good": {name: {"body", "content"}}, "wrong": [{"case", "of", "set", "drop", "code", "details"}]}`. A wrong
case is the good body `of` that name, with the values at some paths set and some paths dropped. The value `{"repeat":
[x, n]}` stands for n times x: a string, or the entries of a list in which `#` becomes the index.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.webapp.conftest import body


def good(file: str) -> list[Any]:
    """Return (body, content) of each good case."""
    return [
        pytest.param(expand(case["body"]), expand(case.get("content")), id=name)
        for name, case in body(f"messages/{file}")["good"].items()
    ]


def wrong(file: str) -> list[Any]:
    """Return (body, code, start of the details) of each wrong case."""
    cases = body(f"messages/{file}")
    return [
        pytest.param(changed(cases["good"][case["of"]]["body"], case), case["code"], case["details"], id=case["case"])
        for case in cases["wrong"]
    ]


def expand(value: Any) -> Any:
    """Return the value with every `repeat` expanded."""
    if isinstance(value, dict):
        if set(value) == {"repeat"}:
            what, count = value["repeat"]
            if isinstance(what, str):
                return what * count
            return [json.loads(json.dumps(what).replace("#", str(n))) for n in range(count)]
        return {key: expand(entry) for key, entry in value.items()}
    return [expand(entry) for entry in value] if isinstance(value, list) else value


def changed(value: Any, case: dict[str, Any]) -> Any:
    """Return a copy with the changes of a case."""
    value = copy.deepcopy(value)
    for path, entry in case.get("set", {}).items():
        *steps, last = path.split(".")
        node = _walk(value, steps)
        node[int(last) if isinstance(node, list) else last] = expand(entry)
    for path in case.get("drop", []):
        *steps, last = path.split(".")
        node = _walk(value, steps)
        del node[int(last) if isinstance(node, list) else last]
    return expand(value)


def _walk(node: Any, steps: list[str]) -> Any:
    for step in steps:
        node = node[int(step) if isinstance(node, list) else step]
    return node
