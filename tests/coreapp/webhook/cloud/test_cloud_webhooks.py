"""Events of a number reach the callback of the Cloud API: signed, in order, beside the webhook of v1."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from aiohttp import web

from coreapp import webhook_secrets
from harness import polling
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tests.coreapp.signals import Signals, soon
from tests.coreapp.sink import SECRET
from tests.manual_clock import ManualClock
from tests.web_server import serving
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.keys import cloud_urls
from tidings.keys.cloud_urls import CloudCallback
from tidings.storage.business import callbacks, cloud_callbacks, cloud_subscriptions, queue_views
from tidings.wire import core
from tidings.wire import device as frames
from tidings.wire.cloud import wamid

NUMBER, WABA, APP = "1393060602093303", "2397639735729717", "3711468565284653"
PEER = "15550110001"
TEXT = b'{"type":"text","text":{"body":"hi"}}'
DAY = 24 * 3600.0


@dataclasses.dataclass
class CloudPost:
    """One webhook received."""

    event_ids: list[str]
    body: dict[str, Any]
    status: int

    @property
    def values(self) -> list[dict[str, Any]]:
        return [change["value"] for entry in self.body["entry"] for change in entry["changes"]]

    @property
    def labels(self) -> list[tuple[str, str]]:
        """Return (id, what happened) of each event."""
        found = [(each["id"], each["status"]) for value in self.values for each in value.get("statuses", ())]
        found += [(each["id"], each["type"]) for value in self.values for each in value.get("messages", ())]
        return found + [("", "errors") for value in self.values if "errors" in value]


class CloudSink:
    """Receiver that verifies each signature over the raw bytes."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.signals = Signals()
        self.posts: list[CloudPost] = []
        self.respond: Callable[[CloudPost], int | Awaitable[int]] = lambda post: 200
        self.url = ""

    def labels(self) -> list[tuple[str, str]]:
        return [label for post in self.posts if post.status == 200 for label in post.labels]

    async def hook(self, request: web.Request) -> web.Response:
        raw = await request.read()
        made = hmac.new(self.secret.encode(), raw, hashlib.sha256).hexdigest()
        assert request.headers["X-Hub-Signature-256"] == f"sha256={made}"
        assert len(request.headers["X-Hub-Signature-256"]) == 71
        old = hmac.new(self.secret.encode(), raw, hashlib.sha1).hexdigest()
        assert request.headers["X-Hub-Signature"] == f"sha1={old}"
        assert request.headers["Content-Type"] == "application/json"
        assert request.headers["User-Agent"] == "facebookexternalua"
        assert raw.isascii()
        post = CloudPost(request.headers["webhook-id"].split(","), json.loads(raw), 0)
        self.posts.append(post)
        self.signals.changed()
        response = self.respond(post)
        post.status = response if isinstance(response, int) else await response
        self.signals.changed()
        return web.Response(status=post.status)

    async def taken(self, *labels: tuple[str, str]) -> None:
        """Wait until these events were accepted."""
        await self.signals.until(lambda: set(labels) <= set(self.labels()))


@contextlib.asynccontextmanager
async def receiving(secret: str) -> AsyncIterator[CloudSink]:
    sink, app = CloudSink(secret), web.Application()
    app.router.add_post("/hook", sink.hook)
    async with serving(app) as url:
        sink.url = f"{url}/hook"
        yield sink


@pytest.fixture
async def cloud_sink() -> AsyncIterator[CloudSink]:
    async with receiving(webhook_secrets.app_secret(SECRET, APP)) as sink:
        yield sink


async def subscribe(
    world: World, url: str, *, node: str = APP, fields: tuple[str, ...] = ("messages",), api_url: str = ""
) -> None:
    """Store a callback, as the Webapp does, and the subscription of the app."""
    callback = CloudCallback(url, "v25.0", fields, api_url)
    row = cloud_urls.sealed(SecretSealer(b"s" * 32), BUSINESS, node, callback)
    async with world.database.transaction() as connection:
        await cloud_callbacks.put(connection, row)
        await cloud_subscriptions.add(connection, WABA, APP, 1)


async def only_cloud(world: World) -> None:
    await world.configure(webhooks={"url": ""})


async def started(world: World, **settings: Any) -> tuple[Running, Phone]:
    """Start a Coreapp for one recipient, who is known to be valid."""
    (phone,) = world.add_phones(PEER)
    running = await world.start(**settings)
    await world.connected(running)
    await running.client.check(PEER)
    return running, phone


def mine(response: core.Accepted) -> str:
    """Return the Cloud API's id of an accepted message."""
    return wamid.encode(response.id, PEER)


async def rows(world: World) -> list[tuple[str, str]]:
    """Return kind and subject of the stored callbacks, of dead letters too."""
    async with world.database.reading() as connection:
        found = await connection.execute(callbacks.table.select().order_by(callbacks.table.c.seq))
        return [(row.kind, row.subject) for row in found]


async def dead(world: World, count: int) -> Sequence[callbacks.Callback]:
    """Wait until there are `count` dead letters, and return them."""

    async def are_there() -> bool:
        async with world.database.reading() as connection:
            return len(await callbacks.list_dead(connection)) == count

    await polling.until(are_there, pause=0.01)
    async with world.database.reading() as connection:
        return await callbacks.list_dead(connection)


def test_the_secret_of_an_app_is_derived_and_has_the_form_of_the_real_ones() -> None:
    secret = webhook_secrets.app_secret(SECRET, APP)
    key = b"a secret of exactly 32 bytes...."
    assert secret == hmac.new(key, b"tidings cloud app\n3711468565284653", hashlib.sha256).hexdigest()[:32]
    assert secret != webhook_secrets.app_secret(SECRET, "3711468565284654")


async def test_statuses_and_a_reply_reach_the_callback_and_v1(world: World, cloud_sink: CloudSink) -> None:
    world.network.receipts = (frames.DELIVERED, frames.READ)
    await subscribe(world, cloud_sink.url)
    running, phone = await started(world)
    response = await running.client.call(
        lambda n: core.AcceptMessage(n, BUSINESS, PEER, "text", TEXT, callback_data="order 7 \u00fc")
    )
    steps = ["sent", "delivered", "read"]
    await cloud_sink.taken(*((mine(response), step) for step in steps))
    assert cloud_sink.labels() == [(mine(response), step) for step in steps]
    found = [value["statuses"][0] for post in cloud_sink.posts for value in post.values]
    assert {status["biz_opaque_callback_data"] for status in found} == {"order 7 \u00fc"}
    assert {status["recipient_id"] for status in found} == {PEER}
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 3)
    assert world.sink.statuses_of(response.id) == steps
    assert not {post.event_id for post in world.sink.posts} & {
        each for post in cloud_sink.posts for each in post.event_ids
    }

    (send,) = world.network.sends
    phone.read(send.kind, send.body)
    kind, body = phone.write(b'{"type":"text","text":{"body":"a/b \xe2\x9c\x93"}}')
    world.network.deliver(PEER, kind, id="in-1", body=body, timestamp=1_700_000_000_123)
    received = wamid.encode("in-1", PEER, by_recipient=True)
    await cloud_sink.taken((received, "text"))
    (value,) = cloud_sink.posts[-1].values
    assert value["contacts"] == [{"profile": {"name": PEER}, "wa_id": PEER}]
    assert value["messages"][0]["text"] == {"body": "a/b \u2713"}
    assert value["metadata"] == {"display_phone_number": BUSINESS, "phone_number_id": NUMBER}
    await world.sink.signals.until(lambda: ("in-1", "received") in world.sink.labels())


async def test_a_recipient_off_the_network_fails_with_131026(world: World, cloud_sink: CloudSink) -> None:
    await subscribe(world, cloud_sink.url)
    running, _ = await started(world)
    nobody = "15550160000"
    response = await running.client.call(
        lambda n: core.AcceptMessage(n, BUSINESS, nobody, "text", TEXT, checked_late=True)
    )
    await cloud_sink.taken((wamid.encode(response.id, nobody), "failed"))
    (value,) = cloud_sink.posts[-1].values
    (status,) = value["statuses"]
    assert status["errors"][0]["code"] == 131026
    assert "pricing" not in status


async def test_the_callback_of_the_number_overrides_those_of_waba_and_app(world: World, cloud_sink: CloudSink) -> None:
    async with receiving(cloud_sink.secret) as of_waba, receiving(cloud_sink.secret) as of_number:
        await subscribe(world, cloud_sink.url)
        await subscribe(world, of_waba.url, node=WABA, fields=())
        running, _ = await started(world)
        first = await running.client.send(PEER)
        await of_waba.taken((mine(first), "sent"))
        await subscribe(world, of_number.url, node=NUMBER, fields=())
        await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS))
        second = await running.client.send(PEER)
        await of_number.taken((mine(second), "sent"))
        assert not cloud_sink.posts
        assert of_waba.labels() == [(mine(first), "sent")]


@pytest.mark.parametrize("lacks", ["subscription", "field"])
async def test_a_callback_without_a_subscription_or_its_field_gets_nothing(
    world: World, cloud_sink: CloudSink, lacks: str
) -> None:
    fields = ("account_update",) if lacks == "field" else ("messages",)
    await subscribe(world, cloud_sink.url, fields=fields)
    if lacks == "subscription":
        async with world.database.transaction() as connection:
            await cloud_subscriptions.remove(connection, WABA, APP)
    running, _ = await started(world)
    response = await running.client.send(PEER)
    await world.sink.signals.until(lambda: (response.id, "sent") in world.sink.labels())
    assert all(kind == "status_change" for kind, _ in await rows(world))
    await running.stopped()
    assert not cloud_sink.posts


async def test_without_a_webhook_of_v1_only_the_cloud_api_has_callbacks(world: World, cloud_sink: CloudSink) -> None:
    await world.configure(webhooks={"url": ""}, callback_persist=False)
    await subscribe(world, cloud_sink.url)
    cloud_sink.respond = lambda post: 500
    running, _ = await started(world)
    response = await running.client.send(PEER)
    await cloud_sink.signals.until(lambda: len(cloud_sink.posts) >= 2)

    async def is_stored() -> bool:
        return await rows(world) == [("cloud_status", f"cloud:{response.id}")]

    # The second post may precede the commit of the row.
    await polling.until(is_stored, pause=0.01)
    for recipient, kinds in ((PEER, ["cloud_status"]), ("15550110002", [])):
        async with world.database.reading() as connection:
            found = await queue_views.list_callbacks(connection, queue_views.RowFilter(recipient=recipient))
        assert [view.kind for view in found] == kinds
    cloud_sink.respond = lambda post: 200
    await cloud_sink.taken((mine(response), "sent"))


async def test_callbacks_of_v1_become_dead_letters_when_only_the_cloud_api_has_a_callback(
    world: World, cloud_sink: CloudSink
) -> None:
    await only_cloud(world)
    running, _ = await started(world)
    response = await running.client.send(PEER)

    async def is_stored() -> bool:
        return await rows(world) == [("status_change", response.id)]

    await polling.until(is_stored, pause=0.01)
    await subscribe(world, cloud_sink.url)
    await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS))
    (letter,) = await dead(world, 1)
    assert (letter.kind, letter.last_error) == ("status_change", "no URL is set for webhooks in this format")
    await world.configure(webhooks={"url": world.sink.url})
    await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS))
    assert (await running.client.call(lambda n: core.ReplayCallbacks(n, [], "ann"))).count == 1
    await world.sink.signals.until(lambda: (response.id, "sent") in world.sink.labels())


async def test_a_webhook_is_retried_for_7_days_and_then_a_replayable_dead_letter(
    world: World, cloud_sink: CloudSink
) -> None:
    await only_cloud(world)
    await subscribe(world, cloud_sink.url)
    clock = ManualClock()
    running, _ = await started(world, clock=clock)
    queue = running.shard.webhook.queue
    cloud_sink.respond = lambda post: 201
    response = await running.client.send(PEER)
    for count in range(1, 14):
        await cloud_sink.signals.until(lambda count=count: len(cloud_sink.posts) == count)  # type: ignore[misc]
        await soon(lambda: queue.scheduled > 0)
        clock.advance(DAY / 2)
        queue.release_due()
    # The 14th attempt is made after 6.5 days, the 15th after 7.
    await cloud_sink.signals.until(lambda: len(cloud_sink.posts) == 14)
    await soon(lambda: queue.scheduled > 0)
    clock.advance(DAY / 2)
    queue.release_due()
    (letter,) = await dead(world, 1)
    assert (letter.kind, letter.attempt, letter.last_error) == ("cloud_status", 15, "HTTP 201")
    cloud_sink.respond = lambda post: 200
    assert (await running.client.call(lambda n: core.ReplayCallbacks(n, [], "ann"))).count == 1
    await cloud_sink.taken((mine(response), "sent"))
    assert len({each for post in cloud_sink.posts for each in post.event_ids}) == 1


async def test_the_webhooks_of_the_two_formats_do_not_wait_for_each_other(world: World, cloud_sink: CloudSink) -> None:
    await world.configure(webhooks={"url": world.sink.url, "max_concurrent_requests": 6})
    await subscribe(world, cloud_sink.url)
    released = asyncio.Event()

    async def hang(post: object) -> int:
        await released.wait()
        return 200

    cloud_sink.respond = hang
    running, _ = await started(world)
    responses = [await running.client.send(PEER) for _ in range(20)]
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 20)
    assert not cloud_sink.labels()
    assert len(cloud_sink.posts) == 6
    released.set()
    await cloud_sink.taken(*((mine(response), "sent") for response in responses))


async def test_due_webhooks_are_posted_together_if_configured(world: World, cloud_sink: CloudSink) -> None:
    await world.configure(webhooks={"url": world.sink.url, "max_concurrent_requests": 6})
    await subscribe(world, cloud_sink.url)
    released = asyncio.Event()

    async def hang(post: object) -> int:
        await released.wait()
        return 500

    cloud_sink.respond = hang
    running, _ = await started(world, cloud_batch=50)
    responses = [await running.client.send(PEER) for _ in range(60)]
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 60)
    cloud_sink.respond = lambda post: 200
    released.set()
    labels = [(mine(response), "sent") for response in responses]
    await cloud_sink.taken(*labels)
    assert sorted(cloud_sink.labels()) == sorted(labels)
    sizes = [len(post.body["entry"]) for post in cloud_sink.posts]
    assert 1 < max(sizes) <= 50
    assert all(len(post.event_ids) == len(post.body["entry"]) for post in cloud_sink.posts)
    by_label: dict[tuple[str, str], set[str]] = {}
    for post in cloud_sink.posts:
        for event_id, label in zip(post.event_ids, post.labels, strict=True):
            by_label.setdefault(label, set()).add(event_id)
    assert {len(event_ids) for event_ids in by_label.values()} == {1}


async def test_the_secret_and_the_url_are_not_in_plain_text_in_the_database(
    world: World, cloud_sink: CloudSink
) -> None:
    await subscribe(world, "https://ann:canary@example.com/hook")
    async with world.database.reading() as connection:
        (row,) = await cloud_callbacks.list_of(connection, [APP])
    assert b"canary" not in row.content
