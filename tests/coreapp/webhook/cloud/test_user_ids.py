"""Ids of users in webhooks of the Cloud API: their fields, what they do not reveal, and that they can be resolved."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coreapp import cloud_users, webhook_secrets
from coreapp.cloud_users import CloudUserIds
from coreapp.config import ConfigSource
from coreapp.webhook import inbound
from coreapp.webhook.cloud import messages, statuses
from coreapp.webhook.cloud.statuses import ReportedStatus
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.sink import SECRET
from tests.coreapp.webhook.cloud.test_cloud_webhooks import APP, CloudSink, receiving, subscribe
from tidings.aio.clock import SystemClock
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.storage.business import certificates, number_removal, numbers
from tidings.storage.business import cloud_users as rows
from tidings.storage.business.cloud_users import CloudUser
from tidings.storage.business.messages import Status
from tidings.wire import core
from tidings.wire import device as frames
from tidings.wire.cloud import wamid
from tidings.wire.cloud.identity import derive

CASES = json.loads((Path(__file__).parents[3] / "data" / "cloud" / "user_webhooks.json").read_text())
OURS = "gBEG0Qx1kLmTa1b2c3d4e5f6g7h"
VISIBLE, NAMED = "15550110001", "15550370007"
IDENTITY = derive("15550000000")
USERS = CloudUserIds(b"k" * 32, IDENTITY)


@pytest.fixture
async def cloud_sink() -> AsyncIterator[CloudSink]:
    async with receiving(webhook_secrets.app_secret(SECRET, APP)) as sink:
        yield sink


def value_of(body: bytes, peer: str) -> str:
    """Return the value of a webhook as JSON, with placeholders for ids of messages, in the order of the body."""
    text = body.decode("ascii").replace("\\/", "/")
    digits = "" if peer == NAMED else peer
    for name, message_id, by_recipient in (("<id>", "in-1", True), ("<theirs>", "in-0", True), ("<ours>", OURS, False)):
        text = text.replace(wamid.encode(message_id, digits, by_recipient=by_recipient), name)
    value = json.loads(text)["entry"][0]["changes"][0]["value"]
    del value["messaging_product"], value["metadata"]
    return json.dumps(value)


@pytest.mark.parametrize("case", CASES["inbound"], ids=lambda case: case["case"])
def test_an_inbound_message_names_its_user(case: dict[str, Any]) -> None:
    message = inbound.read(json.dumps(case["content"]).encode())
    body = messages.inbound(IDENTITY, "in-1", case["sender"], 1_700_000_000, message, show=USERS.show)
    assert value_of(body, case["sender"]) == json.dumps(case["value"])
    check_reveals_nothing(body, case["sender"])


@pytest.mark.parametrize("case", CASES["statuses"], ids=lambda case: case["case"])
def test_a_status_names_its_user(case: dict[str, Any]) -> None:
    status = ReportedStatus(
        message_id=OURS,
        recipient=case["recipient"],
        reached=Status[case["reached"]],
        timestamp=1_700_000_000,
        kind="text",
        category="",
        callback_data=None,
        error=tuple(case["error"]) if "error" in case else None,
    )
    body = statuses.body(IDENTITY, status, 25, USERS.show(case["recipient"]))
    assert value_of(body, case["recipient"]) == json.dumps(case["value"])
    check_reveals_nothing(body, case["recipient"])


def check_reveals_nothing(body: bytes, peer: str) -> None:
    """Check that a webhook about a user with a user name has the number in no form."""
    if peer != NAMED:
        return
    assert peer.encode() not in body
    for part in body.replace(b"\\/", b"/").split(b'"'):
        if part.startswith(b"wamid."):
            assert peer.encode() not in base64.b64decode(part.removeprefix(b"wamid."))


def test_known_users_are_stored_once() -> None:
    users = CloudUserIds(b"k" * 32, IDENTITY)
    [row] = users.to_store(VISIBLE)
    assert (row.account, row.user_id, row.peer) == ("15550000000", "US.87797448132355736591", VISIBLE)
    assert len(users.to_store(VISIBLE, NAMED)) == 2


async def test_the_key_of_a_number_is_made_once_for_all_processes(world: World) -> None:
    safe = SecretSealer(b"s" * 32)
    one = await cloud_users.find(world.database, derive(BUSINESS), safe)
    other = await cloud_users.find(world.database, derive(BUSINESS), SecretSealer(b"s" * 32))
    further = await cloud_users.find(world.database, derive("15550000001"), safe)
    assert one is not None
    assert other is not None
    assert further is not None
    assert one.show(VISIBLE) == other.show(VISIBLE) != further.show(VISIBLE)
    assert await cloud_users.find(world.database, derive(BUSINESS), SecretSealer(b"t" * 32)) is None


async def test_numbers_of_one_waba_have_one_key_and_one_id_of_a_user(world: World) -> None:
    first, second, safe = BUSINESS, "15550000001", SecretSealer(b"s" * 32)
    async with world.database.transaction() as connection:
        await numbers.add_first(connection, first)
        member = await numbers.add(connection, second, waba_of=first)
    await subscribe(world, "https://example.com/webhook")
    shown: list[CloudUser] = []
    for account in (second, first):
        secrets = webhook_secrets.WebhookSecrets(account, SECRET, safe)
        source = ConfigSource(
            world.database, account, safe=safe, secrets=secrets, clock=SystemClock(), with_user_ids=True
        )
        config = await source.open()
        assert config.cloud is not None
        shown.extend(config.cloud.to_store(VISIBLE))
    of_second, of_first = shown
    assert of_second == of_first
    assert of_second.account == first
    async with world.database.transaction() as connection:
        await rows.add(connection, [of_second])
        await number_removal.begin(connection, member, drop=True)
        for table in number_removal.list_tables():
            while await number_removal.delete_page(connection, second, table) is not None:
                pass
    async with world.database.reading() as connection:
        assert await rows.find_peer(connection, first, of_second.user_id) == VISIBLE
        kept = await certificates.find_certificate(connection, first, certificates.CLOUD_USER_KEY)
    assert kept is not None


@pytest.mark.parametrize("peer", [VISIBLE, NAMED])
async def test_webhooks_name_users_by_ids_that_are_stored_with_them(
    world: World, cloud_sink: CloudSink, peer: str
) -> None:
    digits = "" if peer == NAMED else peer
    world.network.receipts = (frames.DELIVERED,)
    await subscribe(world, cloud_sink.url)
    (phone,) = world.add_phones(peer)
    running = await world.start(cloud_user_ids=True)
    await world.connected(running)
    await running.client.check(peer)
    response = await running.client.send(peer)
    await cloud_sink.taken((wamid.encode(response.id, digits), "delivered"))
    (send,) = world.network.sends
    phone.read(send.kind, send.body)
    kind, body = phone.write(b'{"type":"text","text":{"body":"hi"}}')
    world.network.deliver(peer, kind, id="in-1", body=body, timestamp=1_700_000_000_123)
    await cloud_sink.taken((wamid.encode("in-1", digits, by_recipient=True), "text"))
    values = [value for post in cloud_sink.posts for value in post.values]
    [user_id] = {value["contacts"][0]["user_id"] for value in values}
    assert {value["statuses"][0]["recipient_user_id"] for value in values if "statuses" in value} == {user_id}
    assert ["from" in value["messages"][0] for value in values if "messages" in value] == [peer == VISIBLE]
    assert ["wa_id" in value["contacts"][0] for value in values] == [peer == VISIBLE] * 3
    async with world.database.reading() as connection:
        assert await rows.find_peer(connection, BUSINESS, user_id) == peer
    await running.stopped()
    again = await world.start(cloud_user_ids=True)
    await world.connected(again)
    later = await again.client.send(peer)
    await cloud_sink.taken((wamid.encode(later.id, digits), "sent"))
    assert {value["contacts"][0]["user_id"] for post in cloud_sink.posts for value in post.values} == {user_id}


async def test_a_new_number_of_a_user_can_be_resolved(world: World, cloud_sink: CloudSink) -> None:
    await subscribe(world, cloud_sink.url)
    (phone,) = world.add_phones(VISIBLE)
    running = await world.start(cloud_user_ids=True)
    await world.connected(running)
    await running.client.check(VISIBLE)
    response = await running.client.send(VISIBLE)
    await cloud_sink.taken((wamid.encode(response.id, VISIBLE), "sent"))
    (send,) = world.network.sends
    phone.read(send.kind, send.body)
    kind, body = phone.write(b'{"type":"system","system":{"type":"user_changed_number","new_wa_id":"15550110002"}}')
    world.network.deliver(VISIBLE, kind, id="in-1", body=body, timestamp=1_700_000_000_123)
    await cloud_sink.taken((wamid.encode("in-1", VISIBLE, by_recipient=True), "system"))
    (value,) = cloud_sink.posts[-1].values
    async with world.database.reading() as connection:
        found = await rows.find_peer(connection, BUSINESS, value["messages"][0]["system"]["user_id"])
    assert found == "15550110002"


@pytest.mark.parametrize("peer", [VISIBLE, NAMED])
async def test_without_the_setting_webhooks_have_no_ids_and_nothing_is_stored(
    world: World, cloud_sink: CloudSink, peer: str
) -> None:
    await subscribe(world, cloud_sink.url)
    world.add_phones(peer)
    running = await world.start()
    await world.connected(running)
    content = b'{"type":"text","text":{"body":"hi"}}'
    response = await running.client.call(
        lambda n: core.AcceptMessage(n, BUSINESS, peer, "text", content, checked_late=True)
    )
    await cloud_sink.taken((wamid.encode(response.id, peer), "sent"))
    (value,) = cloud_sink.posts[-1].values
    assert "contacts" not in value
    assert value["statuses"][0]["recipient_id"] == peer
    assert "recipient_user_id" not in value["statuses"][0]
    async with world.database.reading() as connection:
        assert (await connection.execute(rows.table.select())).all() == []
