"""Each webhook body is as the reference has it, and fits its JSON Schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coreapp import conversations, ids
from coreapp.conversations import conversation_of
from coreapp.webhook import bodies, inbound
from tests.coreapp import webhook_schemas
from tidings.storage.messages import Status

CASES = json.loads((webhook_schemas.FOLDER / "inbound.json").read_text())
NUMBER = "15550110001"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_inbound_content_becomes_the_documented_body(case: dict[str, Any]) -> None:
    message = inbound.read(json.dumps(case["content"]).encode())
    body = json.loads(bodies.inbound("ABGG1", NUMBER, 1_700_000_000, message))
    assert body == {
        "contacts": [{"profile": {"name": case.get("name", NUMBER)}, "wa_id": NUMBER}],
        "messages": [{"from": NUMBER, "id": "ABGG1", "timestamp": "1700000000", **case["message"]}],
    }
    webhook_schemas.check(body)


@given(
    st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_whatever_is_inside_the_encryption_can_be_posted(plaintext: bytes) -> None:
    message = inbound.read(plaintext)
    # The two others need no content beside their type.
    assert message.kind in (inbound.UNKNOWN, inbound.NULL, "ephemeral")
    json.loads(bodies.inbound("x", NUMBER, 1, message))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([case["content"] for case in CASES.values() if len(case["content"]) > 1]), st.data())
def test_a_content_that_was_changed_anywhere_is_posted_in_some_known_form(
    content: dict[str, Any], data: st.DataObject
) -> None:
    content = json.loads(json.dumps(content))
    node: Any = content
    while isinstance(node, dict | list) and node:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.booleans()):
            node[key] = data.draw(_JSON)
            break
        node = node[key]
    message = inbound.read(json.dumps(content).encode())
    if message.kind not in (inbound.NULL, inbound.DELETED):
        webhook_schemas.check(json.loads(bodies.inbound("x", NUMBER, 1, message)))


@pytest.mark.parametrize("reached", [Status.SENT, Status.DELIVERED, Status.READ])
def test_a_status_names_its_conversation_and_only_sent_says_when_it_ends(reached: Status) -> None:
    talk = conversation_of("15550000000", NUMBER, "template", 1_700_000_000)
    body = json.loads(bodies.status("gBEG1", NUMBER, reached, 1_700_000_000, None, talk))
    webhook_schemas.check(body)
    [entry] = body["statuses"]
    assert entry["conversation"]["id"] == talk.id
    assert ("expiration_timestamp" in entry["conversation"]) is (reached is Status.SENT)
    assert entry["conversation"]["origin"] == {"type": "business_initiated"}
    assert entry["pricing"] == {"pricing_model": "CBP", "billable": True, "category": "business_initiated"}


def test_the_other_statuses_fit_their_schemas() -> None:
    for body in (
        bodies.status("gBEG1", NUMBER, Status.SENT, 1),
        bodies.status("gBEG1", NUMBER, Status.FAILED, 1, (470, "why")),
        bodies.deleted("ABGG1", NUMBER, 1),
        bodies.errors(500, "why"),
        bodies.garbage_report("message", 5, "host1:1"),
        bodies.garbage_report("media", 0, "host1:1"),
        bodies.garbage_report("media", None, "host1:1"),
        bodies.contacts([{"input": "+1", "status": "invalid"}, {"input": "x", "status": "valid", "wa_id": NUMBER}]),
    ):
        webhook_schemas.check(json.loads(body))
    failed = json.loads(bodies.status("gBEG1", NUMBER, Status.FAILED, 1, (470, "why")))
    assert failed["statuses"][0]["errors"] == [{"code": 470, "title": "Re-engagement message", "details": "why"}]


@given(st.integers(0, 4_000_000_000), st.sampled_from(["text", "template"]))
def test_a_conversation_lasts_24_hours_and_the_next_follows(time: int, kind: str) -> None:
    talk = conversation_of("1", NUMBER, kind, time)
    assert time < talk.expires_at <= time + conversations.DAY
    assert conversation_of("1", NUMBER, kind, talk.expires_at - 1).id == talk.id
    after = conversation_of("1", NUMBER, kind, talk.expires_at)
    assert after.id != talk.id
    assert after.expires_at == talk.expires_at + conversations.DAY
    assert conversation_of("1", "15550110002", kind, time).id != talk.id


@given(st.integers(0, 62**8 - 1))
def test_an_id_tells_when_it_was_made(milliseconds: int) -> None:
    made = ids.MessageIds(lambda: milliseconds).new()
    assert ids.made_at(made) == pytest.approx(max(milliseconds, 0) / 1000, abs=0.002)
    assert ids.made_at("ABGG" + made[4:]) is None
    assert ids.made_at("gBEG!" + made[5:]) is None
    assert ids.made_at("gBEG1") is None
