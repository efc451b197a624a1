"""What is a number and what is the id of a group is the same for everybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidings.wire import addresses

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "data/wire/addresses.json").read_text())


def decodes(text: str, type_: Any) -> bool:
    try:
        return bool(msgspec.json.decode(msgspec.json.encode(text), type=type_) == text)
    except msgspec.ValidationError:
        return False


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: ascii(recorded["text"]))
def test_an_address_is_what_it_was_recorded_as(recorded: dict[str, Any]) -> None:
    text = recorded["text"]
    found = {
        "number": addresses.is_number(text),
        "wa_id": addresses.is_wa_id(text),
        "group": addresses.is_group(text),
    }
    assert {"text": text, **found} == recorded
    assert decodes(text, addresses.Number) == addresses.is_number(text)
    assert decodes(text, addresses.WaId) == addresses.is_digits(text, 5, 20)


@pytest.mark.parametrize("recorded", [entry for entry in RECORDED if entry["group"] or entry["number"]])
def test_a_group_is_told_from_a_number_without_another_look_at_it(recorded: dict[str, Any]) -> None:
    assert addresses.names_group(recorded["text"]) == recorded["group"]
