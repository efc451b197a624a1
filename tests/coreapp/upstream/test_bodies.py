"""Each message of v1 becomes the body that the Cloud API takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coreapp.upstream.bodies import OutboundMessage, Untranslatable, mark_read

CASES = json.loads((Path(__file__).parents[2] / "data/upstream/messages.json").read_text())


def translated(content: dict[str, Any]) -> Any:
    message = OutboundMessage(json.dumps(content).encode())
    return json.loads(message.body("15550110001", "gBEG1", wamids={"known": "wamid.KNOWN"}))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_a_message_is_translated_field_by_field(case: dict[str, Any]) -> None:
    assert translated(case["content"]) == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": "15550110001",
        **case["body"],
        "biz_opaque_callback_data": "gBEG1",
    }


def test_the_messages_that_a_message_names_are_listed() -> None:
    content = {"type": "image", "image": {"link": "https://example.com/i.png"}, "context": {"id": "a"}}
    assert OutboundMessage(json.dumps(content).encode()).named == ["a"]


def test_a_reaction_to_a_message_that_is_not_known_any_more_fails() -> None:
    with pytest.raises(Untranslatable) as raised:
        translated({"type": "reaction", "reaction": {"message_id": "old", "emoji": "x"}})
    assert raised.value.code == 1009


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"type":"text"}', b"\xff"])
def test_an_unreadable_content_fails_with_a_reason(content: bytes) -> None:
    with pytest.raises(Untranslatable) as raised:
        OutboundMessage(content)
    assert (raised.value.code, raised.value.details) == (500, "the stored message cannot be read")


def test_a_read_mark_has_the_form_of_the_cloud_api() -> None:
    assert json.loads(mark_read("wamid.A")) == {
        "messaging_product": "whatsapp",
        "status": "read",
        "message_id": "wamid.A",
    }


def test_a_message_to_a_stand_in_names_the_user_instead_of_a_number() -> None:
    content = json.dumps({"type": "text", "text": {"body": "x"}}).encode()
    body = json.loads(OutboundMessage(content).body("999844650983059", "own", wamids={}, user_id="US.1349"))
    assert body == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "recipient": "US.1349",
        "type": "text",
        "text": {"body": "x"},
        "biz_opaque_callback_data": "own",
    }
