"""Each webhook body is as the reference defines it, and matches its JSON Schema."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coreapp import conversations
from coreapp.conversations import ConversationNames, conversation_of, origin_of
from coreapp.webhook import bodies, inbound, limits
from tests.coreapp import webhook_schemas
from tidings.storage.business.messages import Status
from tidings.wire import ids
from tidings.wire.content import DELETED, NULL

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


def place(*path: str | int) -> Any:
    """Return a function that makes a content with a given string or number at this path."""

    def make(value: Any) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(json.dumps(CASES[path[0]]["content"]))
        node: Any = content[content["type"]]
        for step in path[1:-1]:
            node = node[step]
        node[path[-1]] = value
        return content

    return make


# Path, limit in characters, and the webhook's name of the field.
LIMITS = [
    (("text", "body"), 4_096, "text.body"),
    (("image", "caption"), 1_024, "image.caption"),
    (("document", "mime_type"), 255, "document.mime_type"),
    (("document", "sha256"), 64, "document.sha256"),
    (("location", "name"), 1_024, "location.name"),
    (("location", "address"), 1_024, "location.address"),
    (("location", "url"), 2_048, "location.url"),
    (("contacts", 0, "name", "formatted_name"), 1_024, "contacts[0].name.formatted_name"),
    (("contacts", 0, "phones", 0, "phone"), 1_024, "contacts[0].phones[0].phone"),
    (("button reply", "button_reply", "id"), 256, "interactive.button_reply.id"),
    (("button reply", "button_reply", "title"), 20, "interactive.button_reply.title"),
    (("list reply", "list_reply", "id"), 200, "interactive.list_reply.id"),
    (("list reply", "list_reply", "title"), 24, "interactive.list_reply.title"),
    (("list reply", "list_reply", "description"), 72, "interactive.list_reply.description"),
    (("form", "nfm_reply", "body"), 1_024, "interactive.nfm_reply.body"),
    (("form", "nfm_reply", "response_json"), 65_536, "interactive.nfm_reply.response_json"),
    (("button", "text"), 25, "button.text"),
    (("button", "payload"), 32_768, "button.payload"),
    (("order", "catalog_id"), 100, "order.catalog_id"),
    (("order", "text"), 1_024, "order.text"),
    (("order", "product_items", 0, "product_retailer_id"), 100, "order.product_items[0].product_retailer_id"),
    (("changed number", "body"), 1_024, "system.body"),
]


@pytest.mark.parametrize(("path", "limit", "name"), LIMITS, ids=[name for _, _, name in LIMITS])
def test_contents_beyond_the_api_s_length_limits_are_unknown_with_an_error(
    path: tuple[str | int, ...], limit: int, name: str
) -> None:
    make = place(*path)
    longest = make("ä" * limit)
    assert inbound.read(json.dumps(longest).encode()).kind == longest["type"]
    message = inbound.read(json.dumps(make("ä" * (limit + 1))).encode())
    body = json.loads(bodies.inbound("ABGG1", NUMBER, 1_700_000_000, message))
    webhook_schemas.check(body)
    entry = body["messages"][0]
    assert (entry["type"], entry["errors"][0]["code"]) == ("unknown", 501)
    assert entry["errors"][0]["details"] == f"{name} is longer than {limit:,} characters"


def test_the_documentation_lists_these_length_limits() -> None:
    text = (Path(__file__).parents[3] / "docs" / "device-api.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("### How long a content may be\n")
    told: dict[str, int] = {}
    for row in re.findall(r"^\| (`.*?) \| (\d.*?) \|", rest.partition("\n## ")[0], re.MULTILINE):
        names = re.findall(r"`([\w.]+)`", row[0])
        told |= zip(names, (int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*\d", row[1])), strict=True)
    assert "| every string in a card of `contacts` | 1,024 | `unknown` |" in rest
    expected = {name.replace("[0]", ""): limit for _, limit, name in LIMITS if not name.startswith("contacts")}
    assert {name: told[name] for name in expected} == expected
    cut = {"document.filename": limits.MAX_FILE_NAME, "profile.name": limits.MAX_PROFILE_NAME}
    assert {name: told[name] for name in cut} == cut


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("text", "body"), ""),
        (("order", "product_items", 0, "quantity"), 0),
        (("order", "product_items", 0, "quantity"), 2**31),
        (("order", "product_items", 0, "item_price"), -1),
        (("order", "product_items", 0, "currency"), "euro"),
        (("reaction", "emoji"), "like"),
        (("reaction", "emoji"), "1"),
        (("reaction", "emoji"), "👍\n"),
        (("reaction", "emoji"), "👍" * 33),
    ],
)
def test_invalid_contents_are_posted_as_unknown(path: tuple[str | int, ...], value: Any) -> None:
    assert inbound.read(json.dumps(place(*path)(value)).encode()).kind == inbound.UNKNOWN


@pytest.mark.parametrize("emoji", ["👍🏽", "❤️", "1️⃣", "#⃣", "ℹ️", "🇦🇹", "👩🏽‍❤️‍💋‍👨🏿", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "©️", "‼️", ""])
def test_every_form_of_an_emoji_is_accepted_in_a_reaction(emoji: str) -> None:
    message = inbound.read(json.dumps(place("reaction", "emoji")(emoji)).encode())
    assert (message.kind, message.content.emoji) == ("reaction", emoji)


def test_profile_and_file_names_are_truncated() -> None:
    document = place("document", "filename")("n" * 1_000 + ".pdf") | {"profile": {"name": "A" * 100_000}}
    message = inbound.read(json.dumps(document).encode())
    assert (message.name, message.content.filename) == ("A" * 128, "n" * 251 + ".pdf")
    without = inbound.read(json.dumps(place("document", "filename")("n" * 200 + "." + "x" * 800)).encode())
    assert without.content.filename == "n" * 200
    whole = "n" * 251 + ".pdf"
    assert inbound.read(json.dumps(place("document", "filename")(whole)).encode()).content.filename == whole


@given(
    st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_any_plaintext_can_be_posted(plaintext: bytes) -> None:
    message = inbound.read(plaintext)
    # The other two kinds need no content beyond their type.
    assert message.kind in (inbound.UNKNOWN, NULL, "ephemeral")
    json.loads(bodies.inbound("x", NUMBER, 1, message))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([case["content"] for case in CASES.values() if len(case["content"]) > 1]), st.data())
def test_a_content_changed_anywhere_is_posted_in_a_known_form(content: dict[str, Any], data: st.DataObject) -> None:
    content = json.loads(json.dumps(content))
    node: Any = content
    while isinstance(node, dict | list) and node:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.booleans()):
            node[key] = data.draw(_JSON)
            break
        node = node[key]
    message = inbound.read(json.dumps(content).encode())
    if message.kind not in (NULL, DELETED):
        webhook_schemas.check(json.loads(bodies.inbound("x", NUMBER, 1, message)))


@pytest.mark.parametrize("reached", [Status.SENT, Status.DELIVERED, Status.READ])
def test_every_status_names_its_conversation_and_only_sent_its_expiration(reached: Status) -> None:
    talk = conversation_of("15550000000", NUMBER, "marketing", 1_700_000_000)
    body = json.loads(bodies.status("gBEG1", NUMBER, reached, 1_700_000_000, None, talk))
    webhook_schemas.check(body)
    [entry] = body["statuses"]
    assert entry["conversation"]["id"] == talk.id
    assert ("expiration_timestamp" in entry["conversation"]) is (reached is Status.SENT)
    assert entry["conversation"]["origin"] == {"type": "marketing"}
    assert entry["pricing"] == {"pricing_model": "CBP", "billable": True, "category": "marketing"}


@pytest.mark.parametrize(
    ("kind", "category", "origin", "older"),
    [
        ("template", "MARKETING", "marketing", "business_initiated"),
        ("hsm", "UTILITY", "utility", "business_initiated"),
        ("template", "AUTHENTICATION", "authentication", "business_initiated"),
        ("template", "", "utility", "business_initiated"),
        ("text", "", "service", "user_initiated"),
    ],
)
def test_a_conversation_is_named_after_its_template_category_or_its_initiator(
    kind: str, category: str, origin: str, older: str
) -> None:
    assert origin_of(kind, category, ConversationNames.CATEGORY) == origin
    assert origin_of(kind, category, ConversationNames.INITIATOR) == older


def test_other_webhook_bodies_match_their_schemas() -> None:
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
def test_a_conversation_lasts_24_hours_and_the_next_follows_directly(time: int, kind: str) -> None:
    talk = conversation_of("1", NUMBER, kind, time)
    assert time < talk.expires_at <= time + conversations.DAY
    assert conversation_of("1", NUMBER, kind, talk.expires_at - 1).id == talk.id
    after = conversation_of("1", NUMBER, kind, talk.expires_at)
    assert after.id != talk.id
    assert after.expires_at == talk.expires_at + conversations.DAY
    assert conversation_of("1", "15550110002", kind, time).id != talk.id


@given(st.integers(0, 62**8 - 1))
def test_a_message_id_contains_its_creation_time(milliseconds: int) -> None:
    made = ids.MessageIds(lambda: milliseconds).new()
    assert ids.made_at(made) == pytest.approx(max(milliseconds, 0) / 1000, abs=0.002)
    assert ids.made_at("ABGG" + made[4:]) is None
    assert ids.made_at("gBEG!" + made[5:]) is None
    assert ids.made_at("gBEG1") is None
