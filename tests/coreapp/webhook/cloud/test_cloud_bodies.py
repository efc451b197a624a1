"""Each webhook of the Cloud API has the fields, their order, the types and the bytes of the reference."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from coreapp.webhook import bodies, inbound
from coreapp.webhook.cloud import envelope, errors, messages, statuses
from coreapp.webhook.cloud.statuses import ReportedStatus
from tidings.storage.business.messages import Status
from tidings.wire import codes
from tidings.wire.cloud.identity import derive

DATA = Path(__file__).parents[3] / "data" / "cloud"
ACCOUNT, PEER = "15550000000", "15550110001"
IDENTITY = derive(ACCOUNT)
OURS = "gBEG0Qx1kLmTa1b2c3d4e5f6g7h"
FILE, FILE_ID = "01234567-89ab-4cde-8f01-23456789abcd", "1158045600182877406"


def recorded(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DATA / f"{name}.json").read_text())
    return found


def wamid(key: str, direction: int) -> str:
    """Return the id with this key, assembled from the bytes that the reference lists."""
    raw = b"\x1c\x18" + bytes([len(PEER)]) + PEER.encode() + b"\x15\x02\x00" + bytes([direction])
    raw += b"\x18" + bytes([len(key)]) + key.encode() + b"\x00"
    return "wamid." + base64.b64encode(raw).decode()


IDS = {
    "<id>": wamid("FF" + b"in-1".hex().upper(), 0x12),
    "<theirs>": wamid("FF" + b"in-0".hex().upper(), 0x12),
    "<ours>": wamid(base64.b64decode(OURS[3:]).hex().upper(), 0x11),
    "<file>": FILE_ID,
}


def text_of(value: dict[str, Any]) -> str:
    """Return the value of a change as JSON without blanks, as the reference escapes it."""
    entry = {"id": "2397639735729717", "changes": [{"value": value, "field": "messages"}]}
    body = {"object": "whatsapp_business_account", "entry": [entry]}
    text = json.dumps(body, separators=(",", ":")).replace("/", "\\/").replace("@", "\\u0040")
    for name, found in IDS.items():
        text = text.replace(name, found.replace("/", "\\/"))
    return text


def value_of(**parts: Any) -> dict[str, Any]:
    metadata = {"display_phone_number": ACCOUNT, "phone_number_id": "1393060602093303"}
    return {"messaging_product": "whatsapp", "metadata": metadata, **parts}


@pytest.mark.parametrize("case", recorded("inbound_webhooks"), ids=lambda case: case["case"])
def test_an_inbound_message_has_the_bytes_of_the_reference(case: dict[str, Any]) -> None:
    message = inbound.read(json.dumps(case["content"]).encode())
    body = messages.inbound(IDENTITY, "in-1", PEER, 1_700_000_000, message)
    contacts = [{"profile": {"name": case.get("name", PEER)}, "wa_id": PEER}]
    parts = {} if case.get("has_no_contacts") else {"contacts": contacts}
    assert body.decode("ascii") == text_of(value_of(**parts, messages=[case["message"]]))


@pytest.mark.parametrize("case", recorded("media_webhooks"), ids=lambda case: case["kind"])
def test_a_received_file_has_the_fields_of_the_reference(case: dict[str, Any]) -> None:
    content = inbound.InboundMedia(case["mime_type"], "aa" * 32, case["caption"], case["filename"], id=FILE)
    message = inbound.Inbound(case["kind"], content)
    body = messages.inbound(IDENTITY, "in-1", PEER, 1_700_000_000, message)
    entry = {"from": PEER, "id": "<id>", "timestamp": "1700000000", "type": case["type"], case["type"]: case["file"]}
    contacts = [{"profile": {"name": PEER}, "wa_id": PEER}]
    assert body.decode("ascii") == text_of(value_of(contacts=contacts, messages=[entry]))


@pytest.mark.parametrize("case", recorded("media_webhooks"), ids=lambda case: case["kind"])
def test_the_url_of_a_file_follows_its_id(case: dict[str, Any]) -> None:
    content = inbound.InboundMedia(case["mime_type"], "aa" * 32, case["caption"], case["filename"], id=FILE)
    message = inbound.Inbound(case["kind"], content)
    body = messages.inbound(IDENTITY, "in-1", PEER, 1_700_000_000, message, file_url=lambda known: f"https://a/{known}")
    found = json.loads(body)["entry"][0]["changes"][0]["value"]["messages"][0][case["type"]]
    before = list(case["file"])
    place = before.index("id") + 1
    assert list(found) == [*before[:place], "url", *before[place:]]
    assert found["url"] == f"https://a/{FILE_ID}"


def status_of(case: dict[str, Any]) -> ReportedStatus:
    return ReportedStatus(
        message_id=OURS,
        recipient=PEER,
        reached=Status[case["reached"]],
        timestamp=1_700_000_000,
        kind=case["kind"],
        category=case.get("category", ""),
        callback_data=case.get("callback_data"),
        error=tuple(case["error"]) if "error" in case else None,
    )


@pytest.mark.parametrize("case", recorded("status_webhooks"), ids=lambda case: case["case"])
def test_a_status_has_the_bytes_of_the_reference(case: dict[str, Any]) -> None:
    body = statuses.body(IDENTITY, status_of(case), case["version"]).decode("ascii")
    expected = text_of(value_of(statuses=[case["status"]]))
    found = json.loads(body)["entry"][0]["changes"][0]["value"]["statuses"][0]
    if "conversation" in found:
        assert len(bytes.fromhex(found["conversation"]["id"])) == 16
        expected = expected.replace("<conversation>", found["conversation"]["id"])
    assert body == expected


def test_each_message_has_a_conversation_of_its_own() -> None:
    case = {"reached": "SENT", "kind": "text"}
    first = statuses.body(IDENTITY, status_of(case), 23)
    same = statuses.body(IDENTITY, status_of({**case, "reached": "DELIVERED"}), 23)
    other = ReportedStatus(
        message_id="gBEGanother",
        recipient=PEER,
        reached=Status.SENT,
        timestamp=1,
        kind="text",
        category="",
        callback_data=None,
    )

    def conversation(body: bytes) -> str:
        found = json.loads(body)["entry"][0]["changes"][0]["value"]["statuses"][0]
        return str(found["conversation"]["id"])

    assert conversation(first) == conversation(same) != conversation(statuses.body(IDENTITY, other, 23))


def test_an_expired_message_is_not_reported() -> None:
    case = {"reached": "FAILED", "kind": "text"}
    assert statuses.is_reported(status_of({**case, "error": [470, "d"]}))
    assert not statuses.is_reported(status_of({**case, "error": [codes.EXPIRED, "d"]}))


def test_messages_that_cannot_be_decrypted_are_errors_of_the_number() -> None:
    error = {
        "code": 131000,
        "title": "Something went wrong",
        "message": "Something went wrong",
        "error_data": {"details": "lost"},
        "href": "/documentation/business-messaging/whatsapp/support/error-codes",
    }
    assert messages.lost(IDENTITY, 500, "lost").decode() == text_of(value_of(errors=[error]))


def test_several_bodies_become_one_with_all_entries() -> None:
    one, two = (messages.lost(IDENTITY, 500, details) for details in ("one", "tw\u00f6/"))
    joined = envelope.joined([one, two])
    assert json.loads(joined)["entry"] == [json.loads(one)["entry"][0], json.loads(two)["entry"][0]]
    assert joined.count(b"\\u00f6\\/") == 1


@pytest.mark.parametrize(
    ("code", "cloud", "title"),
    [
        (470, 131047, "Re-engagement message"),
        (131047, 131047, "Re-engagement message"),
        (131026, 131026, "Message undeliverable"),
        (139999, 139999, "API Unknown"),
    ],
)
def test_codes_of_v1_are_translated_and_those_of_test_numbers_are_kept(code: int, cloud: int, title: str) -> None:
    error = errors.of_own(code, "why")
    assert (error["code"], error["title"]) == (cloud, title)


@pytest.mark.parametrize(
    ("kind", "code", "cloud"),
    [
        ("image", 1006, 131053),
        ("image", 1009, 131053),
        ("template", 1009, 131053),
        ("sticker", 2008, 131053),
        ("reaction", 1009, 131009),
    ],
)
def test_an_unusable_file_and_an_unusable_target_of_a_reaction_have_their_codes(
    kind: str, code: int, cloud: int
) -> None:
    assert errors.of_own(code, "why", kind=kind)["code"] == cloud


@pytest.mark.parametrize(
    ("reached", "is_reported"),
    [(Status.SENT, True), (Status.DELIVERED, False), (Status.READ, False), (Status.FAILED, True)],
)
def test_a_reaction_has_no_status_after_sent(reached: Status, is_reported: bool) -> None:
    status = ReportedStatus(
        message_id="m",
        recipient="15550110001",
        reached=reached,
        timestamp=1,
        kind="reaction",
        category="",
        callback_data=None,
    )
    assert statuses.is_reported(status) is is_reported


def test_only_the_cloud_api_names_the_click_and_the_medium_of_an_advertisement() -> None:
    found = {"source_url": "https://example.com", "headline": "Soup"}
    more = {"media_type": "image", "ctwa_clid": "ARAkLkA8rmlFeiCktEJQ"}
    content = {"type": "text", "text": {"body": "Hi"}, "referral": found | more}
    message = inbound.read(json.dumps(content).encode())
    (change,) = json.loads(messages.inbound(IDENTITY, "in-1", PEER, 1_700_000_000, message))["entry"][0]["changes"]
    assert change["value"]["messages"][0]["referral"] == found | more
    assert json.loads(bodies.inbound("in-1", PEER, 1_700_000_000, message))["messages"][0]["referral"] == found
