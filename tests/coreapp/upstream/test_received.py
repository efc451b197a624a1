"""Webhooks of the Cloud API become those of v1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coreapp.upstream import inbound_ids, received
from coreapp.upstream.received import Unusable
from coreapp.webhook import bodies
from tidings.storage.business.messages import Status

CASES = json.loads((Path(__file__).parents[2] / "data/upstream/received.json").read_text())
COMMON = {"from": "16505551234", "id": "wamid.NEW", "timestamp": "1749416383"}
OWN = {"wamid.OUT": "gBEGown"}


def derive(wamid: str) -> str:
    return f"derived {wamid}".replace(" ", "-")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_a_message_is_shown_as_v1_shows_it(case: dict[str, Any]) -> None:
    message = received.read_message(json.dumps({**COMMON, **case["given"]}).encode(), "Sheena")
    shown = message.shown(message.content(OWN, derive))
    body = json.loads(bodies.inbound("ABGGid", message.sender, message.timestamp, shown))
    expected = json.loads(json.dumps(case["shown"]).replace("derived wamid.IN", "derived-wamid.IN"))
    assert body["messages"] == [{"from": "16505551234", "id": "ABGGid", "timestamp": "1749416383", **expected}]
    if case["shown"]["type"] != "ephemeral":
        assert body["contacts"] == [{"profile": {"name": "Sheena"}, "wa_id": "16505551234"}]
    assert (shown.pointer.blob if shown.pointer is not None else None) == case.get("file")


STAND_IN, USER = "999844650983059", "US.13491208655302741918"


@pytest.mark.parametrize(
    ("given", "context"),
    [
        # A reply of a user to their own message, with the number hidden and shown.
        ({"context": {"id": "wamid.IN"}}, {"id": "derived-wamid.IN", "from": STAND_IN}),
        (
            {"from": "16505551234", "context": {"id": "wamid.IN", "from": "16505551234"}},
            {"id": "derived-wamid.IN", "from": STAND_IN},
        ),
        # To a message of the business.
        ({"context": {"id": "wamid.OUT", "from": "15550000000"}}, {"id": "gBEGown", "from": "15550000000"}),
        ({"context": {"id": "wamid.OUT"}}, {"id": "gBEGown"}),
        ({"context": {"forwarded": True}}, {"forwarded": True}),
        ({}, None),
    ],
)
def test_a_user_without_a_visible_number_is_shown_with_the_stand_in(given: dict[str, Any], context: Any) -> None:
    fields = {"from_user_id": USER, "id": "wamid.NEW", "timestamp": "1749416383", "type": "text", "text": {"body": "x"}}
    body = json.dumps({**fields, **given}).encode()
    message = received.read_message(body, "Sheena", stand_in=STAND_IN, user_id=USER)
    shown = message.shown(message.content(OWN, derive))
    posted = json.loads(bodies.inbound("ABGGid", message.sender, message.timestamp, shown))
    assert posted["contacts"] == [{"profile": {"name": "Sheena"}, "wa_id": STAND_IN}]
    assert posted["messages"][0]["from"] == STAND_IN
    assert posted["messages"][0].get("context") == context
    assert "16505551234" not in json.dumps(posted)


def test_a_status_of_a_user_without_a_visible_number_is_read() -> None:
    found = received.read_status(
        json.dumps({"id": "wamid.OUT", "status": "read", "timestamp": "1750030073", "recipient_user_id": USER}).encode()
    )
    assert (found.wamid, found.reached) == ("wamid.OUT", Status.READ)


@pytest.mark.parametrize(
    "given",
    [
        {"type": "edit", "edit": {"original_message_id": "wamid.A", "message": {}}},
        {"type": "revoke", "revoke": {"original_message_id": "wamid.A"}},
        {"type": "request_welcome"},
        {"type": "system", "system": {"type": "user_changed_user_id", "user_id": "US.1"}},
    ],
)
def test_a_message_without_a_form_in_v1_is_dropped_with_a_reason(given: dict[str, Any]) -> None:
    message = received.read_message(json.dumps({**COMMON, **given}).encode())
    with pytest.raises(Unusable):
        message.content({}, derive)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        json.dumps({**COMMON, "id": ""}).encode(),
        json.dumps({**COMMON, "id": "x" * 256}).encode(),
        json.dumps({**COMMON, "id": 5}).encode(),
        json.dumps({**COMMON, "from": "US.13491208655302741918"}).encode(),
        json.dumps({**COMMON, "timestamp": "soon"}).encode(),
        json.dumps({**COMMON, "timestamp": None}).encode(),
    ],
)
def test_a_malformed_message_is_unusable(body: bytes) -> None:
    with pytest.raises(Unusable):
        received.read_message(body)


def test_the_id_of_a_recipients_message_depends_only_on_the_number_and_the_wamid() -> None:
    first = inbound_ids.derive("15550000000", "wamid.A")
    assert first == inbound_ids.derive("15550000000", "wamid.A")
    assert len({first, inbound_ids.derive("15550000000", "wamid.B"), inbound_ids.derive("15550000001", "wamid.A")}) == 3
    assert len(first) == 27
    assert first.startswith("ABGG")
    assert first.isalnum()


def status(**fields: Any) -> bytes:
    given = {"id": "wamid.OUT", "status": "sent", "timestamp": "1750030073", "recipient_id": "16505551234"}
    return json.dumps({**given, **fields}).encode()


def test_a_status_has_our_id_and_the_pricing_of_v1() -> None:
    found = received.read_status(
        status(
            biz_opaque_callback_data="gBEG1",
            conversation={"id": "c", "expiration_timestamp": "1750116480", "origin": {"type": "marketing"}},
            pricing={"billable": True, "pricing_model": "PMP", "type": "regular", "category": "marketing"},
        )
    )
    assert (found.wamid, found.own_id, found.reached, found.timestamp) == (
        "wamid.OUT",
        "gBEG1",
        Status.SENT,
        1750030073,
    )
    body = json.loads(bodies.status("gBEG1", "16505551234", Status.SENT, 1750030073, priced=found.pricing))
    assert body == {
        "statuses": [
            {
                "id": "gBEG1",
                "recipient_id": "16505551234",
                "status": "sent",
                "timestamp": "1750030073",
                "type": "message",
                "message": {"recipient_id": "16505551234"},
                "conversation": {"id": "c", "expiration_timestamp": 1750116480, "origin": {"type": "marketing"}},
                "pricing": {"billable": True, "pricing_model": "CBP", "type": "regular", "category": "marketing"},
            }
        ]
    }


def test_a_status_without_conversation_and_callback_data_is_complete() -> None:
    found = received.read_status(status(status="delivered"))
    assert (found.own_id, found.reached, found.pricing, found.error) == ("", Status.DELIVERED, {}, None)


@pytest.mark.parametrize(
    ("code", "v1"),
    [
        (131026, 1013),
        (131042, 402),
        (131047, 470),
        (131048, 471),
        (130472, 472),
        (137000, 480),
        (130429, 429),
        (131056, 429),
        (131051, 501),
        (131000, 500),
        (131049, 500),
        (131050, 500),
        (131031, 1031),
        (368, 1031),
        (1, 500),
        (132015, 2061),
        (999999, 500),
    ],
)
def test_a_failed_status_has_the_code_of_v1(code: int, v1: int) -> None:
    error = {"code": code, "title": "T", "message": "T", "error_data": {"details": "why"}, "href": "/x"}
    found = received.read_status(status(status="failed", errors=[error]))
    assert found.code == code
    assert found.error is not None
    body = json.loads(bodies.status("gBEG1", "1", Status.FAILED, 1, found.error))
    (shown,) = body["statuses"][0]["errors"]
    assert shown["code"] == v1
    assert "why" in shown["details"]
    assert shown.keys() == {"code", "title", "details"}


def test_a_failed_status_without_a_reason_fails_all_the_same() -> None:
    given: tuple[Any, ...] = (None, [], [5], [{}], [{"code": "x"}])
    for errors in given:
        found = received.read_status(status(status="failed", errors=errors))
        assert found.error is not None


@pytest.mark.parametrize(
    "body",
    [
        status(status="played"),
        status(status="warning"),
        status(timestamp="x"),
        status(id=None),
        b"{",
        json.dumps({"id": "wamid.A", "status": "sent"}).encode(),
    ],
)
def test_a_status_without_a_form_in_v1_is_unusable(body: bytes) -> None:
    with pytest.raises(Unusable):
        received.read_status(body)


def test_callback_data_of_others_is_not_taken_for_an_id() -> None:
    for data in (5, "x" * 65, "\u00e9", None, ["a"]):
        assert received.read_status(status(biz_opaque_callback_data=data)).own_id == ""


def test_an_error_of_the_account_has_a_code_of_v1() -> None:
    error = {"code": 131031, "title": "T", "message": "(#131031) T", "error_data": {"details": "locked"}}
    assert received.read_error(json.dumps(error).encode()) == (1031, "locked")
    with pytest.raises(Unusable):
        received.read_error(b"[]")
