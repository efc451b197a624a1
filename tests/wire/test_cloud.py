"""Ids, JSON and codes of the Cloud API that Webapp and Coreapp share."""

from __future__ import annotations

import base64
import uuid

import pytest

from tidings.wire import codes
from tidings.wire.cloud import identity, json_text, media_ids, wamid
from tidings.wire.cloud.codes import CODES, MESSAGE_FAILURES, REQUEST_ERRORS, of_request_error
from tidings.wire.ids import MessageIds


def test_the_ids_of_a_number_are_stable_and_different() -> None:
    found = identity.derive("15550000000")
    assert (found.phone_number_id, found.waba_id, found.app_id, found.business_id) == (
        "1393060602093303",
        "2397639735729717",
        "3711468565284653",
        "4529949791234566",
    )
    assert identity.derive("15550000001").phone_number_id != found.phone_number_id


def test_numbers_may_share_waba_app_and_portfolio() -> None:
    first, second = identity.derive("15550000000"), identity.derive("15550000001", "15550000000")
    third = identity.derive("15550000002")
    assert second.phone_number_id == identity.derive("15550000001").phone_number_id
    assert (second.waba_id, second.app_id, second.business_id) == (
        "2397639735729717",
        "3711468565284653",
        "4529949791234566",
    )
    assert [second.owner_of(node) for node in (second.phone_number_id, second.waba_id, second.app_id)] == [
        "15550000001",
        "15550000000",
        "15550000000",
    ]
    directory = identity.IdentityDirectory([first, second, third])
    assert directory.accounts_of(first.waba_id) == ("15550000000", "15550000001")
    assert directory.accounts_of(second.phone_number_id) == ("15550000001",)
    assert directory.accounts_of("2000000000000000") == ()
    assert directory.owner(first.app_id) == "15550000000"
    foreign = [directory.is_foreign(first.waba_id, f"1555000000{n}") for n in (0, 1, 2)]
    assert foreign == [False, False, True]


def test_a_directory_knows_the_objects_of_its_numbers() -> None:
    first, second = identity.derive("15550000000"), identity.derive("15550000001")
    directory = identity.IdentityDirectory([first, second])
    assert directory.kind(first.phone_number_id) == "number"
    assert directory.kind(second.waba_id) == "waba"
    assert directory.kind("5000000000000000") == "template"
    assert directory.kind("1000000000000000") is None
    assert directory.of("15550000001") is second


@pytest.mark.parametrize(
    ("message_id", "by_recipient"),
    [
        ("gBEG0VbtnydAJRrmtg5BGV4raEP", False),
        ("gBEI0VbtnydAJRrmtg5BGV4raEP", True),
        ("gBEG" + "z" * 23, False),
        ("gBEG" + "0" * 23, False),
        ("ABGGFlA5FpafAgo6tHcNmNjXmuSf", True),
        ("3EB0", True),
        ("é" * 20, True),
        ("x" * 64, True),
    ],
)
def test_a_message_id_survives_the_conversion(message_id: str, by_recipient: bool) -> None:
    text = wamid.encode(message_id, "15550110001", by_recipient=by_recipient)
    assert wamid.decode(text) == wamid.DecodedId(message_id, by_recipient)


def test_new_message_ids_survive_the_conversion() -> None:
    ids = MessageIds()
    for message_id in [*(ids.new() for _ in range(100)), ids.new_notice()]:
        found = wamid.decode(wamid.encode(message_id, "15550110001"))
        assert found is not None
        assert found.message_id == message_id


def test_a_message_id_has_the_structure_of_the_cloud_api() -> None:
    raw = base64.b64decode(wamid.encode("gBEG0VbtnydAJRrmtg5BGV4raEP", "15550110001").removeprefix("wamid."))
    assert raw.startswith(b"\x1c\x18\x0b15550110001\x15\x02\x00\x11\x18\x24")
    assert raw.endswith(b"\x00")
    assert len(wamid.encode("gBEG0VbtnydAJRrmtg5BGV4raEP", "15550110001")) == 82


@pytest.mark.parametrize(
    "text",
    ["", "wamid.", "wamid.!!!", "wamid.AAAA", "gBEG0VbtnydAJRrmtg5BGV4raEP", "wamid." + "A" * 600, "wamid.HBgL"],
)
def test_other_texts_are_no_message_ids(text: str) -> None:
    assert wamid.decode(text) is None
    assert wamid.key_of(text) is None


@pytest.mark.parametrize("key", ["9A3CA5B3D4CD6E67E7", "3EB0C431D8F14E7B2C11", "0" * 64])
def test_the_key_of_an_id_of_another_server_is_known(key: str) -> None:
    raw = b"\x1c\x18\x0b15550110001\x15\x02\x00\x11\x18%c%b\x00" % (len(key), key.encode())
    text = f"wamid.{base64.b64encode(raw).decode()}"
    assert wamid.decode(text) is None
    assert wamid.key_of(text) == key


def test_json_is_escaped_as_the_cloud_api_does() -> None:
    assert json_text.encode({"a": "http://x@y", "b": [1, True, None]}) == (
        b'{"a":"http:\\/\\/x\\u0040y","b":[1,true,null]}'
    )
    assert json_text.encode("é😀") == b'"\\u00e9\\ud83d\\ude00"'


def test_an_id_of_a_file_contains_the_prefix_of_its_uuid() -> None:
    for _ in range(100):
        media_id = str(uuid.uuid4())
        text = media_ids.encode(media_id)
        assert len(text) == 19
        assert int(text) < 2**63
        assert media_ids.is_media_id(text)
        assert media_id.startswith(media_ids.prefix(text))
        assert len(media_ids.prefix(text)) == 18


@pytest.mark.parametrize("text", ["", "1", "9" * 19, "1" * 20, "x" * 19])
def test_other_texts_are_no_ids_of_files(text: str) -> None:
    assert not media_ids.is_media_id(text)


def test_each_code_of_a_request_has_a_translation() -> None:
    assert {of_request_error(code) for code in codes.CODES if code >= 1000} <= set(CODES)
    assert set(REQUEST_ERRORS.values()) | set(MESSAGE_FAILURES.values()) <= set(CODES)
    assert of_request_error(codes.FLOW_ID) == 131009
    assert of_request_error(codes.NOT_GROUP_ADMIN) == 131000
