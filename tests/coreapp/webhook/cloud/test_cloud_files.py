"""Files of recipients in the Cloud API: how long they are known."""

from __future__ import annotations

import json
from typing import Any

from tests.coreapp import media_scene as scene
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tests.coreapp.webhook.cloud.test_cloud_webhooks import PEER, CloudSink, cloud_sink, started, subscribe
from tidings.storage.business.media import MediaRow
from tidings.wire import core
from tidings.wire.cloud import wamid

__all__ = ["cloud_sink"]
WEEK_MS = 604_800_000


async def begin(world: World) -> tuple[Running, Phone]:
    """Start a Coreapp, and a phone that has a session with it."""
    running, phone = await started(world)
    scene.Inbox(world, phone)
    await running.client.send(PEER)
    await world.network.signals.until(lambda: phone.record is not None)
    return running, phone


async def write(world: World, phone: Phone, message_id: str) -> None:
    sent = world.network.blobs.put(scene.PNG, "image/png")
    kind, body = phone.write(json.dumps({"type": "image", "image": sent}).encode())
    world.network.deliver(PEER, kind, id=message_id, body=body)


async def stored(world: World, message_id: str) -> tuple[dict[str, Any], MediaRow]:
    """Return the image in the webhook of v1, and the row of its file."""
    await world.sink.signals.until(lambda: (message_id, "received") in world.sink.labels())
    (post,) = [post for post in world.sink.taken() if post.label == (message_id, "received")]
    image: dict[str, Any] = post.body["messages"][0]["image"]
    row = await scene.find(world, image["id"])
    assert row is not None
    return image, row


async def test_a_received_file_expires_after_7_days_if_the_cloud_api_reports_it(
    world: World, cloud_sink: CloudSink
) -> None:
    running, phone = await begin(world)
    await write(world, phone, "in-1")
    _, row = await stored(world, "in-1")
    assert row.cloud_expires_at is None
    await subscribe(world, cloud_sink.url)
    await running.client.ask(lambda n: core.SettingsChanged(n, BUSINESS))
    await write(world, phone, "in-2")
    await cloud_sink.taken((wamid.encode("in-2", PEER, by_recipient=True), "image"))
    _, row = await stored(world, "in-2")
    assert row.cloud_expires_at == row.created_at + WEEK_MS
