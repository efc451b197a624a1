"""Webhooks of the Cloud API that a test requests are on disk before the response, and reach the callback of the app."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from coreapp import webhook_secrets
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.sink import SECRET
from tests.coreapp.webhook.cloud.test_cloud_webhooks import (
    APP,
    NUMBER,
    WABA,
    CloudSink,
    receiving,
    rows,
    subscribe,
)
from tidings.storage.business import callbacks
from tidings.storage.database import Connection
from tidings.wire import codes, core

EVENT = "evt_00112233445566778899aabbccddeeff"
DELETED: dict[str, Any] = {"event": "ACCOUNT_DELETED"}
SHOWN: dict[str, Any] = {"display_phone_number": BUSINESS}
METADATA: dict[str, Any] = {
    "messaging_product": "whatsapp",
    "metadata": {"display_phone_number": BUSINESS, "phone_number_id": NUMBER},
}


@pytest.fixture
async def cloud_sink() -> AsyncIterator[CloudSink]:
    async with receiving(webhook_secrets.app_secret(SECRET, APP)) as sink:
        yield sink


async def started(world: World, **settings: Any) -> Running:
    running = await world.start(**{"testing": True, **settings})
    await world.connected(running)
    return running


async def call(running: Running, field: str, value: dict[str, Any], event: str = EVENT) -> Any:
    encoded = json.dumps(value).encode()
    return await running.client.call(lambda n: core.QueueWebhook(n, BUSINESS, field, encoded, event))


@pytest.mark.parametrize(
    ("field", "value", "posted"),
    [
        ("account_update", {"event": "ACCOUNT_VIOLATION", "violation_info": {"violation_type": "ADULT"}}, {}),
        ("account_review_update", {"decision": "APPROVED"}, {}),
        ("security", {"event": "PIN_CHANGED", "requester": "1"}, SHOWN),
        ("phone_number_name_update", {"decision": "APPROVED", "rejection_reason": None}, SHOWN),
        ("phone_number_quality_update", {"event": "FLAGGED", "current_limit": "TIER_1K"}, SHOWN),
        ("business_username_update", {"status": "deleted"}, SHOWN),
        ("security", {"display_phone_number": "15550009999", "event": "PIN_CHANGED"}, {}),
        ("user_preferences", {"user_preferences": [{"wa_id": "15550110001", "value": "stop"}]}, METADATA),
        ("user_preferences", {"metadata": {"phone_number_id": "1"}}, {"messaging_product": "whatsapp"}),
    ],
)
async def test_a_requested_webhook_has_the_envelope_and_what_its_value_lacks(
    world: World, cloud_sink: CloudSink, field: str, value: dict[str, Any], posted: dict[str, Any]
) -> None:
    await subscribe(world, cloud_sink.url, fields=(field,))
    running = await started(world)
    assert isinstance(await call(running, field, value), core.Done)
    await cloud_sink.signals.until(lambda: len(cloud_sink.posts) == 1)
    (post,) = cloud_sink.posts
    (entry,) = post.body["entry"]
    assert abs(entry["time"] - time.time()) < 60
    change = {"value": {**posted, **value}, "field": field}
    expected = {
        "object": "whatsapp_business_account",
        "entry": [{"id": WABA, "time": entry["time"], "changes": [change]}],
    }
    assert json.dumps(post.body) == json.dumps(expected)
    assert post.event_ids == [EVENT]


async def test_webhooks_of_one_field_are_posted_in_order_to_the_callback_of_the_app(
    world: World, cloud_sink: CloudSink
) -> None:
    cloud_sink.respond = lambda post: 200 if len(cloud_sink.posts) > 1 else 500
    async with receiving(cloud_sink.secret) as override:
        await subscribe(world, override.url, node=WABA, fields=())
        await subscribe(world, cloud_sink.url, fields=("messages", "account_update"))
        await world.configure(callback_backoff_delay_ms=100)
        running = await started(world)
        for event in ("evt_1", "evt_2"):
            assert isinstance(await call(running, "account_update", DELETED, event), core.Done)
        await cloud_sink.signals.until(lambda: len(cloud_sink.posts) == 3)
        assert [post.event_ids for post in cloud_sink.posts] == [["evt_1"], ["evt_1"], ["evt_2"]]
        assert override.posts == world.sink.posts == []


async def test_the_webhook_is_on_disk_before_the_response_and_survives_a_kill(
    world: World, cloud_sink: CloudSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on, enqueue = asyncio.Event(), asyncio.Event(), callbacks.enqueue

    async def held(connection: Connection, found: Sequence[callbacks.Callback], sealed: Sequence[bytes]) -> None:
        if found:
            entered.set()
            await go_on.wait()
        await enqueue(connection, found, sealed)

    async def hang(_: object) -> int:
        await asyncio.sleep(60)
        return 200

    cloud_sink.respond = hang
    await subscribe(world, cloud_sink.url, fields=("account_update",))
    running = await started(world)
    monkeypatch.setattr(callbacks, "enqueue", held)
    request = asyncio.create_task(call(running, "account_update", DELETED))
    await entered.wait()
    done, _ = await asyncio.wait([request], timeout=0.2)
    assert not done
    assert cloud_sink.posts == []
    go_on.set()
    assert isinstance(await request, core.Done)
    assert await rows(world) == [("cloud_account", "cloud:account_update")]
    await cloud_sink.signals.until(lambda: len(cloud_sink.posts) == 1)
    await running.killed()
    cloud_sink.respond = lambda post: 200
    await started(world)
    await cloud_sink.signals.until(lambda: len(cloud_sink.posts) == 2)
    assert [post.event_ids for post in cloud_sink.posts] == [[EVENT], [EVENT]]


@pytest.mark.parametrize(
    ("fields", "node", "settings", "code", "words"),
    [
        (None, APP, {}, codes.PARAMETER_INVALID, "has no webhook of the Cloud API"),
        (("messages",), APP, {}, codes.PARAMETER_INVALID, "field: the app is not subscribed to account_update"),
        ((), NUMBER, {}, codes.PARAMETER_INVALID, "field: the app is not subscribed to account_update"),
        (("account_update",), APP, {"testing": False}, codes.ACCESS_DENIED, "TIDINGS_TESTING=1"),
        (("account_update",), APP, {"callback_queue_limit": 0}, codes.OVERLOADED, "the callback queue is at its limit"),
    ],
)
async def test_a_webhook_that_cannot_be_posted_is_refused(
    world: World,
    cloud_sink: CloudSink,
    fields: tuple[str, ...] | None,
    node: str,
    settings: dict[str, Any],
    code: int,
    words: str,
) -> None:
    if fields is not None:
        await subscribe(world, cloud_sink.url, node=node, fields=fields)
    running = await started(world, **settings)
    refused = await call(running, "account_update", DELETED)
    assert isinstance(refused, core.Refused)
    assert refused.code == code
    assert words in refused.details
    assert await rows(world) == []
