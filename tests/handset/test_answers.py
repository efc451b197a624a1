"""Robot that replies with the requested type of message: each reply reaches the webhook in its documented form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coreapp.webhook import bodies, inbound
from handset.application import ReceivedMessage, SendContent
from handset.attachments import pointers
from handset.composing import Content
from handset.robots import behaviours
from handset.robots.behaviours import Behaviour, actions, number_of
from tests.coreapp import webhook_schemas
from tidings.wire import content, media_objects

NUMBER, PEER = number_of(Behaviour.ANSWERS, 7), "15550000000"
FILE = {
    "blob": "b1",
    "key": "QUFB" * 21 + "QQ==",
    "digest": "QUFB" * 10 + "QUE=",
    "size": 5,
    "mime_type": "image/png",
    "sha256": "ab" * 32,
}


def received(kind: str, text: str, raw: str) -> ReceivedMessage:
    return ReceivedMessage(NUMBER, PEER, "gBEG1", 1, 1, 1_700_000_000_000, kind, text, raw)


def requested(kind: str, inside: Any) -> Content | None:
    """Return the robot's reply to a content."""
    text = inside["body"] if kind == "text" else ""
    raw = "" if kind == "text" else json.dumps({"type": kind, kind: inside})
    done = actions(Behaviour.ANSWERS, received(kind, text, raw))
    found = [dict(action.content) for action in done if isinstance(action, SendContent)]
    return found[0] if found else None


def posted(answer: Content | None) -> dict[str, Any]:
    """Return the message that the webhook gets for a reply."""
    assert answer is not None
    body = json.loads(bodies.inbound("ABGG1", NUMBER, 1_700_000_000, inbound.read(content.encode(answer))))
    webhook_schemas.check(body)
    found: dict[str, Any] = body["messages"][0]
    return found


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("location", "location"),
        ("contacts", "contacts"),
        ("order", "order"),
        ("reaction", "reaction"),
        ("system", "system"),
        ("unknown", "unknown"),
        ("ephemeral", "ephemeral"),
        ("reply", "text"),
        ("forwarded", "text"),
        ("referral", "text"),
        ("product", "text"),
        ("Location please", "location"),
    ],
)
def test_the_requested_type_reaches_the_webhook(word: str, kind: str) -> None:
    assert posted(requested("text", {"body": word}))["type"] == kind


def test_keywords_add_a_context_referral_or_system_part_to_the_reply() -> None:
    assert posted(requested("text", {"body": "reply"}))["context"] == {"id": "gBEG1", "from": PEER}
    assert posted(requested("text", {"body": "forwarded"}))["context"] == {"forwarded": True}
    assert posted(requested("text", {"body": "product"}))["context"]["referred_product"]["catalog_id"] == "c1"
    assert posted(requested("text", {"body": "referral"}))["referral"]["source_type"] == "ad"
    assert posted(requested("text", {"body": "system"}))["system"]["new_wa_id"] == number_of(Behaviour.READS, 7)


@pytest.mark.parametrize(
    ("kind", "inside", "expected"),
    [
        (
            "interactive",
            {"type": "button", "action": {"buttons": [{"type": "reply", "reply": {"id": "0", "title": "Yes"}}]}},
            {"type": "button_reply", "button_reply": {"id": "0", "title": "Yes"}},
        ),
        (
            "interactive",
            {"type": "list", "action": {"button": "x", "sections": [{"rows": [{"id": "a", "title": "A"}]}]}},
            {"type": "list_reply", "list_reply": {"id": "a", "title": "A"}},
        ),
        (
            "template",
            {"filled": {"body": "x", "buttons": [{"type": "quick_reply", "text": "Thanks", "payload": "P"}]}},
            {"text": "Thanks", "payload": "P"},
        ),
    ],
)
def test_the_first_choice_is_selected(kind: str, inside: Any, expected: Any) -> None:
    found = posted(requested(kind, inside))
    assert found[found["type"]] == expected
    assert found["context"] == {"id": "gBEG1", "from": PEER}


@pytest.mark.parametrize("kind", media_objects.KINDS)
def test_a_file_is_returned_with_the_same_pointer(kind: str) -> None:
    answer = requested(kind, FILE)
    assert posted(answer)["type"] == kind
    assert answer is not None
    assert pointers.find(kind, json.dumps(answer)) == pointers.find(kind, json.dumps({kind: FILE}))


def test_opus_audio_is_returned_as_a_voice_message() -> None:
    assert posted(requested("audio", FILE | {"mime_type": "audio/ogg; codecs=opus"}))["type"] == "voice"
    assert posted(requested("audio", FILE | {"mime_type": "audio/mpeg"}))["type"] == "audio"


@given(st.sampled_from(["text", "interactive", "image", "template", "x"]), st.text())
def test_a_message_without_a_request_gets_no_reply(kind: str, raw: str) -> None:
    assert behaviours.reply_to(received(kind, "", raw)) is None
    assert requested("text", {"body": "hello location"}) is None
