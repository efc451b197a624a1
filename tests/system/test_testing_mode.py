"""Test mode on real processes: acting as recipients, failures by number, faults and the reset."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from harness import polling
from harness.client import Business
from harness.installation import Installation
from harness.processes import ProcessEnded
from tests import media_samples
from tests.system.webhook import Webhook, listening
from tidings.wire.cloud import wamid

pytestmark = [pytest.mark.whole_system, pytest.mark.asyncio(loop_scope="module")]

NUMBER = "1393060602093303"  # phone number id of 15550000000
READER, ECHO, OFFLINE = "15550110000", "15550140000", "15550130000"
SECONDS = 30.0
VARIABLES = {"TIDINGS_ROBOTS_PER_KIND": "1", "TIDINGS_TESTING": "1", "TIDINGS_CLOUD_API": "1"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    """Installation in test mode that runs, for all tests of this module; on SQLite, with one robot of each kind."""
    async with Installation(tmp_path_factory.mktemp("testing"), None, VARIABLES) as running:
        await running.start()
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def started(installation: Installation) -> AsyncIterator[tuple[httpx.AsyncClient, Webhook]]:
    """Client that is logged in to an installation after a reset, and the webhook that gets all statuses."""
    business: Business = await installation.business()
    async with (
        listening() as (webhook, url),
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{installation.api_port}",
            headers={"Authorization": f"Bearer {business.token}"},
            timeout=60,
        ) as http,
    ):
        await business.set_webhook(url)
        await business.check_call("POST", "/tidings/reset")
        yield http, webhook


async def send(http: httpx.AsyncClient, to: str, text: str = "Hello") -> httpx.Response:
    """Send a text through the Cloud API."""
    message = {"messaging_product": "whatsapp", "to": to, "type": "text", "text": {"body": text}}
    return await http.post(f"/v25.0/{NUMBER}/messages", json=message)


def own_id(response: httpx.Response) -> str:
    """Return v1's id of a message that the Cloud API has accepted."""
    assert response.status_code == 200, response.text
    found = wamid.decode(response.json()["messages"][0]["id"])
    assert found is not None
    return found.message_id


def statuses(webhook: Webhook, message_id: str) -> list[str]:
    found = [status for body in webhook.bodies for status in body.get("statuses", ())]
    return [status["status"] for status in found if status["id"] == message_id]


async def status_of(webhook: Webhook, message_id: str, name: str) -> dict[str, Any]:
    def holds(body: dict[str, Any]) -> bool:
        return any(entry["id"] == message_id and entry["status"] == name for entry in body.get("statuses", ()))

    found: dict[str, Any] = (await webhook.until(holds))["statuses"][0]
    return found


async def test_a_test_sends_every_type_as_a_recipient_and_reads_what_the_handset_shows(
    started: tuple[httpx.AsyncClient, Webhook],
) -> None:
    http, webhook = started
    sent = own_id(await send(http, READER, "Soup or pasta?"))
    await status_of(webhook, sent, "read")
    shown = (await http.get(f"/tidings/recipients/{READER}/shown")).json()["messages"]
    assert [(entry["id"], entry["type"], entry["text"]) for entry in shown] == [(sent, "text", "Soup or pasta?")]
    assert wamid.encode(sent, READER) == shown[0]["wamid"]

    picture = base64.b64encode(media_samples.PNG).decode()
    messages: list[dict[str, Any]] = [
        {"type": "text", "text": {"body": "Soup"}, "context": {"message_id": shown[0]["wamid"]}},
        {"type": "location", "location": {"latitude": 48.2, "longitude": 16.4}},
        {"type": "contacts", "contacts": [{"name": {"formatted_name": "Ada"}}]},
        {"type": "interactive", "interactive": {"type": "button_reply", "button_reply": {"id": "1", "title": "Yes"}}},
        {"type": "button", "button": {"text": "Thanks", "payload": "YES-42"}},
        {
            "type": "order",
            "order": {
                "catalog_id": "c",
                "product_items": [
                    {"product_retailer_id": "p", "quantity": 1, "item_price": 2.5, "currency": "EUR"},
                ],
            },
        },
        {"type": "reaction", "reaction": {"message_id": shown[0]["wamid"], "emoji": "👍"}},
        {"type": "system", "system": {"type": "user_changed_number", "new_wa_id": "15550110009"}},
        {"type": "image", "image": {"data": picture, "mime_type": "image/png", "caption": "Lunch"}},
        {"type": "unknown"},
        {"type": "ephemeral"},
    ]
    for message in messages:
        response = await http.post(
            f"/tidings/recipients/{READER}/messages", json=message | {"profile": {"name": "Ada"}}
        )
        assert response.status_code == 201, response.text
        found = wamid.decode(response.json()["messages"][0]["wamid"])
        assert found is not None
        assert found.by_recipient
        assert found.message_id == response.json()["messages"][0]["id"]
        received = await webhook.received(message["type"])
        assert received["id"] == found.message_id
        assert received["from"] == READER
    replied = await webhook.received("text")
    assert replied["context"] == {"id": sent, "from": "15550000000"}
    assert (await webhook.received("image"))["image"]["caption"] == "Lunch"
    named = await webhook.until(lambda body: body.get("contacts", [{}])[0].get("profile", {}).get("name") == "Ada")
    assert named["contacts"][0]["wa_id"] == READER

    unknown = await http.post("/tidings/recipients/15559990000/messages", json={"text": {"body": "Hello"}})
    assert unknown.status_code == 404
    offline = await http.post(f"/tidings/recipients/{OFFLINE}/messages", json={"text": {"body": "Hello"}})
    assert (offline.status_code, offline.json()["errors"][0]["code"]) == (400, 1009)
    wrong = {"type": "image", "image": {"data": base64.b64encode(b"no picture").decode(), "mime_type": "image/png"}}
    refused = await http.post(f"/tidings/recipients/{READER}/messages", json=wrong)
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (400, 1009)


async def test_a_handset_shows_the_business_as_typing_until_its_message(
    started: tuple[httpx.AsyncClient, Webhook],
) -> None:
    http, webhook = started
    response = await http.post(f"/tidings/recipients/{READER}/messages", json={"text": {"body": "Soup?"}})
    (message,) = response.json()["messages"]
    await webhook.received("text")
    mark = {
        "messaging_product": "whatsapp",
        "status": "read",
        "message_id": message["wamid"],
        "typing_indicator": {"type": "text"},
    }
    assert (await http.post(f"/v25.0/{NUMBER}/messages", json=mark)).json() == {"success": True}

    async def typing() -> list[str]:
        listed: list[str] = (await http.get(f"/tidings/recipients/{READER}/shown")).json()["typing"]
        return listed

    async with asyncio.timeout(SECONDS):
        while await typing() != ["15550000000"]:
            pass
    sent = own_id(await send(http, READER, "Of course"))
    await status_of(webhook, sent, "read")
    assert await typing() == []
    # The indicator itself has no status, and no message appears.
    shown = (await http.get(f"/tidings/recipients/{READER}/shown")).json()["messages"]
    assert [entry["text"] for entry in shown] == ["Of course"]
    assert {status["id"] for body in webhook.bodies for status in body.get("statuses", ())} == {sent}


async def test_a_reset_empties_queues_messages_faults_and_handsets(
    installation: Installation, started: tuple[httpx.AsyncClient, Webhook]
) -> None:
    http, webhook = started
    await status_of(webhook, own_id(await send(http, READER)), "read")
    assert (await http.post("/tidings/faults", json={"target": "webhooks", "times": 1000})).status_code == 201
    failing = own_id(await send(http, READER, "whose callbacks fail"))
    await polling.until(
        lambda: installation.read_value("business", "SELECT MAX(attempt) FROM callbacks") or 0, seconds=SECONDS
    )
    response = await http.post("/tidings/reset")
    assert response.status_code == 200, response.text
    assert response.json()["deleted"] >= 1
    assert statuses(webhook, failing) == []
    for table in ("jobs", "callbacks", "messages"):
        assert installation.read_value("business", f"SELECT COUNT(*) FROM {table}") == 0, table
    assert (await http.get("/tidings/faults")).json()["faults"] == []
    assert (await http.get(f"/tidings/recipients/{READER}/shown")).json()["messages"] == []
    again = own_id(await send(http, READER, "after the reset"))
    await status_of(webhook, again, "read")
    shown = (await http.get(f"/tidings/recipients/{READER}/shown")).json()["messages"]
    assert [entry["text"] for entry in shown] == ["after the reset"]


async def test_the_number_of_a_recipient_chooses_its_failure(started: tuple[httpx.AsyncClient, Webhook]) -> None:
    http, webhook = started

    failed = await status_of(webhook, own_id(await send(http, "15550301026")), "failed")
    assert failed["errors"][0]["code"] == 1013
    v1 = await http.post("/v1/messages", json={"to": "15550301047", "text": {"body": "Hello"}})
    failed = await status_of(webhook, v1.json()["messages"][0]["id"], "failed")
    assert failed["errors"][0]["code"] == 470

    refused = await send(http, "15550312001")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, 132001)
    assert refused.json()["error"]["message"] == "(#132001) Template name does not exist in the translation"
    refused = await http.post("/v1/messages", json={"to": "15550310429", "text": {"body": "Hello"}})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (429, 1015)

    began = time.monotonic()
    await status_of(webhook, own_id(await send(http, "15550320150")), "sent")
    assert time.monotonic() - began >= 1.5

    twice = own_id(await send(http, "15550330000"))
    await webhook.until(lambda body: sorted(statuses(webhook, twice)).count("read") == 2)
    assert sorted(statuses(webhook, twice)) == ["delivered", "delivered", "read", "read", "sent", "sent"]

    turned = own_id(await send(http, "15550340000"))
    await status_of(webhook, turned, "read")
    assert statuses(webhook, turned) == ["delivered", "sent", "read"]

    await send(http, "15550350020")
    replies = {f"reply {position} of 20" for position in range(1, 21)}

    def has_all(body: dict[str, Any]) -> bool:
        texts = (message["text"]["body"] for body in webhook.bodies for message in body.get("messages", ()))
        return replies <= set(texts)

    await webhook.until(has_all)

    with pytest.raises(httpx.RemoteProtocolError):
        await send(http, "15550360000", "accepted without a response")
    dropped = await webhook.until(
        lambda body: any(
            entry["recipient_id"] == "15550360000" and entry["status"] == "read" for entry in body.get("statuses", ())
        )
    )
    assert dropped
    checked = await http.post("/v1/contacts", json={"blocking": "wait", "contacts": ["+15550301026", "+15550320200"]})
    assert {contact["status"] for contact in checked.json()["contacts"]} == {"valid"}


async def test_a_webhook_fault_fails_the_counted_attempts(started: tuple[httpx.AsyncClient, Webhook]) -> None:
    http, webhook = started
    fault = {"target": "webhooks", "times": 2, "http": 503}
    assert (await http.post("/tidings/faults", json=fault)).status_code == 201
    sent = own_id(await send(http, ECHO))
    await status_of(webhook, sent, "read")
    assert statuses(webhook, sent) == ["sent", "delivered", "read"]
    assert (await http.get("/tidings/faults")).json()["faults"] == []


async def test_a_webapp_beyond_loopback_refuses_the_test_mode(tmp_path: Path) -> None:
    installation = Installation(tmp_path, None, VARIABLES)
    with pytest.raises(ProcessEnded):
        await installation.start(
            ["webapp"], {"TIDINGS_API_ADDRESS": f"0.0.0.0:{installation.api_port}", "TIDINGS_API_TLS": "1"}
        )
    log = (installation.directory / "webapp.log").read_text()
    assert "TIDINGS_TESTING=1 needs TIDINGS_API_ADDRESS on loopback" in log
