"""docs/device-api.md is correct about frames; its examples can be decoded and its links resolve."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, get_args

import msgspec
import pytest

from tests.network.device_api_page import PAGE, TEXT, example_frames, fences, fields, hex_dump, section, table
from tidings.wire import addresses, device

FROM_DEVICE = {frame.__struct_config__.tag: frame for frame in get_args(device.FromDevice)}
FROM_NETWORK = {frame.__struct_config__.tag: frame for frame in get_args(device.FromNetwork)}
ALL_FRAMES = {**FROM_DEVICE, **FROM_NETWORK}

TYPES = {
    "int": "integer",
    "Number": "integer",
    "Numbers": "list of integers",
    "int | None": "integer",
    "str": "string",
    "bytes": "bytes",
    "bytes | None": "bytes",
    "list[int]": "list of integers",
    "list[str]": "list of strings",
    "list[Bundle]": "list of bundles",
}


def check_fields(kind: type[msgspec.Struct], described: dict[str, str]) -> None:
    expected = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    assert list(described) == list(expected)
    for name, field in expected.items():
        told, _, default = described[name].partition(", default ")
        assert told == TYPES[kind.__annotations__[field.name]], f"{kind.__name__}.{name}"
        assert bool(default) is not field.required, f"{kind.__name__}.{name}"


@pytest.mark.parametrize("tag", ALL_FRAMES)
def test_every_frame_is_documented_with_fields_types_defaults_and_an_example(tag: str) -> None:
    text = section(f"`{tag}`")
    check_fields(ALL_FRAMES[tag], fields(text.partition("\nFields of a bundle:\n")[0]))
    arrow = "→" if tag in FROM_DEVICE else "←"
    assert any(found == arrow and json.loads(body)["t"] == tag for found, body in example_frames(text))


def test_the_bundle_is_documented() -> None:
    check_fields(device.Bundle, fields(section("`bundles`").partition("\nFields of a bundle:\n")[2]))


@pytest.mark.parametrize(("arrow", "body"), sorted(set(example_frames())))
def test_every_example_frame_round_trips(arrow: str, body: str) -> None:
    frames: Any = device.FromDevice if arrow == "→" else device.FromNetwork
    frame = msgspec.json.decode(body, type=frames)
    assert json.loads(msgspec.json.encode(frame)) == json.loads(body)


def test_every_envelope_kind_and_reason_is_documented() -> None:
    constants = {value for name, value in vars(device).items() if name.isupper() and isinstance(value, str)}
    kinds = {row[0].strip("`") for row in table(section("Kinds of envelope"), "`kind`")}
    reasons = set(re.findall(r"^- `(\w+)` \(`", section("Reasons"), re.MULTILINE))
    assert kinds | reasons == constants
    notices = {device.EXPIRED, device.IDENTITY, device.GROUP_CHANGED, device.ANNOUNCEMENT}
    of_devices = {device.PREKEY, device.MESSAGE, device.GROUP, device.DELIVERED, device.READ, device.RETRY}
    of_devices.add(device.TRANSIENT)
    assert kinds == of_devices | notices


def test_the_messagepack_example_encodes_the_frame_beside_it() -> None:
    text = section("Encoding of frames")
    ((_, body),) = example_frames(text)
    data = hex_dump(text)
    frame = msgspec.msgpack.decode(data, type=device.FromDevice)
    assert frame == msgspec.json.decode(body, type=device.FromDevice)
    assert msgspec.msgpack.encode(frame) == data
    assert f"`{len(data).to_bytes(4, 'big').hex(' ')}` would stand before it" in text


def test_slots_and_partitions_of_the_example_match_the_code() -> None:
    text = section("Partitions")
    (numbers,) = re.findall(r"The numbers (\d+) and (\d+) are in the hash slots", text)
    hash_slots = [addresses.hash_slot_of(number) for number in numbers]
    assert (
        f"are in the hash slots {hash_slots[0]} and {hash_slots[1]}: of two partitions 0 has the one and 1 the other"
        in text
    )
    assert [hash_slot % 2 for hash_slot in hash_slots] == [0, 1]
    ((_, body),) = example_frames(text)
    login = msgspec.json.decode(body, type=device.FromDevice)
    assert device.Partition(login.partition, login.partitions, login.layout).is_valid
    assert f"modulo {addresses.HASH_SLOTS}" in text
    assert f"{', '.join(str(count) for count in addresses.COUNTS[:-1])} or {addresses.COUNTS[-1]}" in section("`login`")


def test_the_group_change_example_decodes_to_the_one_beside_it() -> None:
    text = section("Kinds of envelope")
    (body,) = [json.loads(body)["body"] for _, body in example_frames(text) if '"group_changed"' in body]
    assert base64.b64decode(body).decode() == fences("json", text)[0].strip()


@pytest.mark.parametrize("line", [line for block in fences("json") for line in block.splitlines()])
def test_every_json_example_is_valid(line: str) -> None:
    assert isinstance(json.loads(line), dict)


def test_every_link_of_the_page_resolves() -> None:
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif not target.startswith("https://"):
            assert (PAGE.parent / target.partition("#")[0]).exists(), target
