"""All parts of the product agree on what a number is and what the id of a group is."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidings.wire import addresses

DATA = Path(__file__).parent.parent / "data/wire"
RECORDED: list[dict[str, Any]] = json.loads((DATA / "addresses.json").read_text())
HASH_SLOTS: dict[str, int] = json.loads((DATA / "slots.json").read_text())


def decodes(text: str, type_: Any) -> bool:
    try:
        return bool(msgspec.json.decode(msgspec.json.encode(text), type=type_) == text)
    except msgspec.ValidationError:
        return False


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: ascii(recorded["text"]))
def test_an_address_is_classified_as_recorded(recorded: dict[str, Any]) -> None:
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
def test_a_group_is_distinguished_from_a_number_by_its_text_alone(recorded: dict[str, Any]) -> None:
    assert addresses.names_group(recorded["text"]) == recorded["group"]


@pytest.mark.parametrize(("number", "hash_slot"), HASH_SLOTS.items())
def test_a_number_keeps_its_hash_slot_and_its_shard_is_that_modulo_the_count(number: str, hash_slot: int) -> None:
    assert addresses.hash_slot_of(number) == hash_slot
    for count in addresses.COUNTS:
        assert addresses.shard_of(number, count) == hash_slot % count == zlib.crc32(number.encode()) % count


def test_every_hash_slot_is_used() -> None:
    assert set(HASH_SLOTS.values()) == set(range(addresses.HASH_SLOTS))
