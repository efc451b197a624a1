"""A number ends with its last digit: no line feed may follow it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidings.wire import addresses

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", [addresses.Number, addresses.WaId])
def test_a_number_with_a_line_feed_is_invalid(kind: Any) -> None:
    assert msgspec.convert("15550110001", kind) == "15550110001"
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert("15550110001\n", kind)


def test_no_frame_pattern_ends_with_a_dollar_sign() -> None:
    found = []
    for folder in ("tidings", "network", "coreapp", "handset"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for call in ast.walk(ast.parse(path.read_text())):
                if not (isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == "Meta"):
                    continue
                for keyword in call.keywords:
                    if keyword.arg == "pattern":
                        assert isinstance(keyword.value, ast.Constant)
                        found.append((str(path), keyword.value.value))
    assert found
    assert [(path, pattern) for path, pattern in found if pattern.endswith("$")] == []
