"""Files of recipients in the Cloud API: how long they are known, and the URLs of webhooks."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.coreapp import media_scene as scene
from tests.coreapp.conftest import BUSINESS, LINK_KEY, Running, World
from tests.coreapp.phones import Phone
from tests.coreapp.webhook.cloud.test_cloud_webhooks import PEER, CloudSink, cloud_sink, started, subscribe
from tidings.aio.clock import SystemClock
from tidings.keys.media_links import MediaLinks
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
    await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS))
    await write(world, phone, "in-2")
    await cloud_sink.taken((wamid.encode("in-2", PEER, by_recipient=True), "image"))
    _, row = await stored(world, "in-2")
    assert row.cloud_expires_at == row.created_at + WEEK_MS


async def test_the_webhook_has_a_url_of_the_file_at_the_host_where_the_callback_was_set(
    world: World, cloud_sink: CloudSink
) -> None:
    await subscribe(world, cloud_sink.url, api_url="https://wa.example:9443")
    _, phone = await begin(world)
    await write(world, phone, "in-1")
    await cloud_sink.taken((wamid.encode("in-1", PEER, by_recipient=True), "image"))
    image = cloud_sink.posts[-1].values[0]["messages"][0]["image"]
    assert list(image) == ["mime_type", "sha256", "id", "url"]
    url = urlsplit(image["url"])
    assert (url.scheme, url.netloc, url.path) == ("https", "wa.example:9443", "/whatsapp_business/attachments/")
    query = dict(parse_qsl(url.query))
    assert list(query) == ["mid", "ext", "hash"]
    assert query["mid"] == image["id"]
    assert 290 < int(query["ext"]) - time.time() <= 300
    links = MediaLinks(LINK_KEY, SystemClock())
    assert links.is_valid(BUSINESS, query["mid"], query["ext"], query["hash"])
    assert not links.is_valid("15550000001", query["mid"], query["ext"], query["hash"])
    shown, _ = await stored(world, "in-1")
    assert "url" not in shown
