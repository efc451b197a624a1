"""Files from recipients: the webhook receives each message once, with its file or with the reason for its
absence."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from typing import Any

import pytest

from coreapp.media import downloads as downloads_module
from coreapp.media import retry
from coreapp.media.fetching import Fetcher
from tests.coreapp import media_scene as scene
from tests.coreapp import webhook_schemas
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tests.coreapp.signals import soon
from tests.coreapp.sink import Post
from tests.manual_clock import ManualClock
from tidings.storage.business import media, media_downloads
from tidings.wire.device import Deliver

NUMBER = "15550110001"


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads_module, "delay", lambda attempt: 0.01)


async def begin(world: World, **more: Any) -> tuple[Running, Phone]:
    """Start a Coreapp, and a phone that has a session with it."""
    (phone,) = world.add_phones(NUMBER)
    scene.Inbox(world, phone)
    running = await world.start(**more)
    await world.connected(running)
    await running.client.check(NUMBER)
    await running.client.send(NUMBER)
    await world.network.signals.until(lambda: phone.record is not None)
    return running, phone


def deliver(world: World, phone: Phone, message_id: str, content: dict[str, Any]) -> None:
    kind, body = phone.write(json.dumps(content).encode())
    world.network.deliver(NUMBER, kind, id=message_id, body=body)


async def posted(world: World, message_id: str) -> dict[str, Any]:
    """Return the message as the webhook got it, after checking that it came once."""
    await world.sink.signals.until(lambda: (message_id, "received") in world.sink.labels())
    (post,) = posts(world, message_id)
    webhook_schemas.check(post.body)
    found: dict[str, Any] = post.body["messages"][0]
    return found


def posts(world: World, message_id: str) -> list[Post]:
    return [post for post in world.sink.taken() if post.label == (message_id, "received")]


async def waiting(world: World) -> int:
    async with world.database.reading() as connection:
        return await media_downloads.count(connection, 0)


async def test_an_image_is_downloaded_before_its_callback(world: World) -> None:
    _, phone = await begin(world)
    world.network.blobs.gate = asyncio.Event()
    picture = world.network.blobs.put(scene.PNG, "image/png", caption="A cat")
    deliver(world, phone, "in-1", {"type": "image", "image": picture, "profile": {"name": "Ada"}})
    await world.network.signals.until(lambda: world.network.acknowledged == ["in-1"])
    await world.network.signals.until(lambda: world.network.blobs.downloads == 1)
    assert await waiting(world) == 1
    # The key that opens the file must not be readable in the table.
    async with world.database.reading() as connection:
        (row,) = await media_downloads.list_downloads(connection, 0, limit=10)
    assert b"blob" not in row.content
    assert not posts(world, "in-1")
    world.network.blobs.gate.set()
    message = await posted(world, "in-1")
    image = message["image"]
    found = await scene.find(world, image["id"])
    assert found is not None
    assert image == {
        "id": found.id,
        "file": str(world.settings.media_dir / found.file),
        "mime_type": "image/png",
        "sha256": hashlib.sha256(scene.PNG).hexdigest(),
        "caption": "A cat",
        "status": "downloaded",
    }
    assert scene.read(image["file"]) == scene.PNG
    assert (found.kind, found.mime_type, found.size, found.account) == ("image", "image/png", len(scene.PNG), BUSINESS)
    assert await waiting(world) == 0


@pytest.mark.parametrize("kind", ["audio", "voice", "video", "document", "sticker"])
async def test_every_kind_of_media_is_downloaded(world: World, kind: str) -> None:
    _, phone = await begin(world)
    types = {"audio": "audio/mpeg", "voice": "audio/ogg; codecs=opus", "video": "video/mp4", "sticker": "image/webp"}
    content = b"some bytes of no type"
    sent = world.network.blobs.put(content, types.get(kind, "text/plain"), filename="notes.txt")
    deliver(world, phone, "in-1", {"type": kind, kind: sent})
    message = await posted(world, "in-1")
    found = await scene.find(world, message[kind]["id"])
    assert found is not None
    assert found.kind == ("audio" if kind == "voice" else kind)
    # A file that is not of its declared type is not given that type.
    assert found.mime_type == message[kind]["mime_type"]
    assert found.mime_type == ("text/plain" if kind == "document" else "application/octet-stream")
    assert message[kind]["filename"] == found.filename == "notes.txt"


async def test_kinds_without_auto_download_are_posted_at_once_without_their_file(world: World) -> None:
    await world.configure(media={"auto_download": ["document"]})
    _, phone = await begin(world)
    deliver(world, phone, "in-1", {"type": "image", "image": world.network.blobs.put(scene.PNG, "image/png")})
    message = await posted(world, "in-1")
    assert message["image"]["status"] == "undownloaded"
    assert not {"id", "file", "blob", "key", "digest", "size"} & set(message["image"])
    assert world.network.blobs.downloads == 0


@pytest.mark.parametrize(
    ("change", "details"),
    [
        ({"blob": "no-such-blob"}, "the network does not have the file: HTTP 404"),
        ({"digest": base64.b64encode(b"d" * 32).decode()}, "the attachment does not have this digest"),
        ({"key": base64.b64encode(b"k" * 64).decode()}, "the attachment does not authenticate"),
        ({"size": 5}, "the file is longer than the message states"),
        ({"size": 5_000}, "the file does not match the message"),
        ({"sha256": "00" * 32}, "the file does not match the message"),
    ],
)
async def test_a_failed_download_is_posted_as_an_error_without_an_id(
    world: World, change: dict[str, Any], details: str
) -> None:
    _, phone = await begin(world)
    sent = world.network.blobs.put(scene.PNG, "image/png", caption="A cat")
    deliver(world, phone, "in-1", {"type": "image", "image": sent | change})
    message = await posted(world, "in-1")
    assert message["errors"] == [{"code": 400, "title": "Media download error", "details": details}]
    assert message["image"]["caption"] == "A cat"
    assert message["image"]["status"] == "undownloaded"
    assert not {"id", "file"} & set(message["image"])
    assert await waiting(world) == 0
    assert not any(world.settings.media_dir.iterdir())
    # Another download would return the same file.
    assert world.network.blobs.downloads == 1


async def test_an_interrupted_download_is_retried(world: World) -> None:
    _, phone = await begin(world)
    world.network.blobs.broken = 2
    deliver(world, phone, "in-1", {"type": "image", "image": world.network.blobs.put(scene.PNG, "image/png")})
    message = await posted(world, "in-1")
    assert scene.read(message["image"]["file"]) == scene.PNG
    assert world.network.blobs.downloads == 3


@pytest.mark.parametrize("auto_download", [["image"], []])
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"blob": "../etc/passwd"}, "blob"),
        ({"blob": None}, "blob"),
        ({"key": "a2V5"}, "key"),
        ({"digest": "no base64"}, "digest"),
        ({"size": -1}, "size"),
        ({"size": "5"}, "size"),
    ],
)
async def test_a_malformed_pointer_is_posted_as_an_error_with_or_without_auto_download(
    world: World, change: dict[str, Any], field: str, auto_download: list[str]
) -> None:
    await world.configure(media={"auto_download": auto_download})
    _, phone = await begin(world)
    sent = world.network.blobs.put(scene.PNG, "image/png", caption="A cat") | change
    deliver(world, phone, "in-1", {"type": "image", "image": sent})
    message = await posted(world, "in-1")
    details = f"the message does not state the location of its file: `{field}` is missing or invalid"
    assert message["errors"] == [{"code": 400, "title": "Media download error", "details": details}]
    assert (message["image"]["caption"], message["image"]["status"]) == ("A cat", "undownloaded")
    assert world.network.blobs.downloads == 0


async def test_a_download_waits_while_the_network_is_unavailable(world: World) -> None:
    _, phone = await begin(world)
    world.network.blobs.statuses["download"] = 503
    deliver(world, phone, "in-1", {"type": "image", "image": world.network.blobs.put(scene.PNG, "image/png")})
    # Longer than it takes to try a download that fails every time.
    await world.network.signals.until(lambda: world.network.blobs.downloads > 2 * retry.ATTEMPTS)
    assert not posts(world, "in-1")
    del world.network.blobs.statuses["download"]
    assert "id" in (await posted(world, "in-1"))["image"]


@pytest.mark.parametrize("window", ["during the download", "file on disk, no row", "everything committed"])
async def test_after_a_kill_there_is_exactly_one_callback_and_one_row(world: World, window: str) -> None:
    running, phone = await begin(world)
    reached, stay, patch = asyncio.Event(), asyncio.Event(), pytest.MonkeyPatch()
    original: Any = Fetcher.fetch

    async def fetch(*given: Any) -> Any:
        found = await original(*given)
        reached.set()
        await stay.wait()
        return found

    if window == "during the download":
        world.network.blobs.gate = asyncio.Event()
    elif window == "file on disk, no row":
        patch.setattr(Fetcher, "fetch", fetch)
    else:
        # On disk, and not posted by any shard.
        running.shard.context.journal._listeners[:] = [lambda callbacks: reached.set()]
    deliver(world, phone, "in-1", {"type": "image", "image": world.network.blobs.put(scene.PNG, "image/png")})
    await world.network.signals.until(lambda: world.network.blobs.downloads == 1)
    if world.network.blobs.gate is None:
        await reached.wait()
    await running.killed()
    patch.undo()
    if world.network.blobs.gate is not None:
        world.network.blobs.gate.set()
    again = await world.start(node="second")
    await world.connected(again)
    message = await posted(world, "in-1")
    await again.stopped()
    assert len(posts(world, "in-1")) == 1
    async with world.database.reading() as connection:
        rows = await media.list_unused(connection, BUSINESS, 2**60, now=2**60)
    assert [row.id for row in rows] == [message["image"]["id"]]
    assert await waiting(world) == 0


async def test_downloads_beyond_the_memory_limit_wait_in_the_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads_module, "IN_MEMORY", 3)
    running, phone = await begin(world)
    world.network.blobs.gate = asyncio.Event()
    ids = [f"in-{n}" for n in range(20)]
    for message_id in ids:
        sent = world.network.blobs.put(scene.PNG + message_id.encode(), "image/png")
        deliver(world, phone, message_id, {"type": "image", "image": sent})
    await world.network.signals.until(lambda: set(world.network.acknowledged) == set(ids))
    assert running.shard.media.downloads.waiting <= 3
    assert await waiting(world) == 20
    world.network.blobs.gate.set()
    await world.sink.signals.until(lambda: {label[0] for label in world.sink.labels()} >= set(ids))
    await running.stopped()
    for message_id in ids:
        message = await posted(world, message_id)
        assert scene.read(message["image"]["file"]) == scene.PNG + message_id.encode()
    assert await waiting(world) == 0


async def test_a_message_deleted_before_its_download_is_posted_without_file_then_deleted(world: World) -> None:
    running, phone = await begin(world)
    world.network.blobs.gate = asyncio.Event()
    deliver(world, phone, "in-1", {"type": "image", "image": world.network.blobs.put(scene.PNG, "image/png")})
    await world.network.signals.until(lambda: world.network.blobs.downloads == 1)
    deliver(world, phone, "in-2", {"type": "deleted", "deleted": {"id": "in-1"}})
    await world.sink.signals.until(lambda: ("in-1", "deleted") in world.sink.labels())
    assert world.sink.statuses_of("in-1") == ["received", "deleted"]
    assert (await posted(world, "in-1"))["image"]["status"] == "undownloaded"
    world.network.blobs.gate.set()
    await soon(lambda: not running.shard.media.downloads.under_way)
    await running.stopped()
    assert len(posts(world, "in-1")) == 1
    assert not any(world.settings.media_dir.iterdir())
    assert await waiting(world) == 0


async def test_a_message_deleted_while_its_download_is_only_in_the_table_is_posted_before_its_deletion(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads_module, "IN_MEMORY", 1)
    running, phone = await begin(world)
    world.network.blobs.gate = asyncio.Event()
    for message_id in ("in-1", "in-2", "in-3"):
        sent = world.network.blobs.put(scene.PNG + message_id.encode(), "image/png")
        deliver(world, phone, message_id, {"type": "image", "image": sent})
    await world.network.signals.until(lambda: world.network.blobs.downloads == 1)
    deliver(world, phone, "in-4", {"type": "deleted", "deleted": {"id": "in-3"}})
    await world.sink.signals.until(lambda: ("in-3", "deleted") in world.sink.labels())
    world.network.blobs.gate.set()
    assert (await posted(world, "in-2"))["image"]["status"] == "downloaded"
    await soon(lambda: not running.shard.media.downloads.under_way)
    await running.stopped()
    assert world.sink.statuses_of("in-3") == ["received", "deleted"]
    assert (await posted(world, "in-3"))["image"]["status"] == "undownloaded"
    assert world.network.blobs.downloads == 2
    assert await waiting(world) == 0


async def test_deleting_a_message_of_another_sender_ends_no_download_in_the_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads_module, "IN_MEMORY", 1)
    running, phone = await begin(world)
    (stranger,) = world.add_phones("15550110002")
    scene.Inbox(world, stranger)
    await running.client.send(stranger.number)
    await world.network.signals.until(lambda: stranger.record is not None)
    world.network.blobs.gate = asyncio.Event()
    for message_id in ("in-1", "in-2", "in-3"):
        sent = world.network.blobs.put(scene.PNG + message_id.encode(), "image/png")
        deliver(world, phone, message_id, {"type": "image", "image": sent})
    await world.network.signals.until(lambda: world.network.blobs.downloads == 1)
    # A restarted Coreapp knows neither the author nor whether the table has the download.
    monkeypatch.setattr(running.shard.receiving.statuses.tracker, "peer", lambda message_id: None)
    kind, body = stranger.write(b'{"type":"deleted","deleted":{"id":"in-3"}}')
    world.network.deliver(stranger.number, kind, id="in-4", body=body)
    await world.network.signals.until(lambda: "in-4" in world.network.acknowledged)
    world.network.blobs.gate.set()
    assert (await posted(world, "in-3"))["image"]["status"] == "downloaded"
    await running.stopped()
    assert world.sink.statuses_of("in-3") == ["received"]
    assert await waiting(world) == 0


async def test_a_download_that_kills_its_process_is_given_up_after_the_last_attempt(world: World) -> None:
    running, _ = await begin(world)
    sent = world.network.blobs.put(scene.PNG, "image/png")
    plaintext = json.dumps({"type": "image", "image": sent}).encode()
    row = running.shard.media.downloads.make("in-1", NUMBER, 5_000, plaintext)
    row.attempt = retry.LAST_ATTEMPT
    await running.stopped()
    async with world.database.transaction() as connection:
        await media_downloads.enqueue(connection, [row])
    again = await world.start(node="second")
    await world.connected(again)
    message = await posted(world, "in-1")
    assert message["errors"][0]["code"] == 400
    assert world.network.blobs.downloads == 0


async def test_a_message_and_its_deletion_in_one_batch_are_posted_in_order(world: World) -> None:
    running, phone = await begin(world)
    sent = world.network.blobs.put(scene.PNG, "image/png")
    running.shard.link.acknowledge = lambda deliveries: None  # type: ignore[method-assign]
    for message_id, content in (
        ("in-1", {"type": "image", "image": sent}),
        ("in-2", {"type": "deleted", "deleted": {"id": "in-1"}}),
    ):
        kind, body = phone.write(json.dumps(content).encode())
        running.shard.receiving.delivered(Deliver(1, BUSINESS, NUMBER, message_id, kind, 5_000, body))
    await world.sink.signals.until(lambda: ("in-1", "deleted") in world.sink.labels())
    await running.stopped()
    assert world.sink.statuses_of("in-1") == ["received", "deleted"]
    assert world.network.blobs.downloads == 0


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_clock_that_jumps_ahead_gives_no_download_up(world: World, restarts: bool) -> None:
    # The clock of the database is right.
    clock = ManualClock(time.time())
    running, phone = await begin(world, clock=clock)
    world.network.blobs.statuses["download"] = 503
    deliver(world, phone, "in-1", {"type": "image", "image": world.network.blobs.put(scene.PNG, "image/png")})
    await world.network.signals.until(lambda: world.network.blobs.downloads > 0)
    clock.jump(2 * 86_400)
    if restarts:
        await running.stopped()
        await world.start(clock=clock, node="second")
    before = world.network.blobs.downloads

    def advance() -> bool:
        clock.advance(0.1)
        return world.network.blobs.downloads > before + 3

    await soon(advance)
    assert not posts(world, "in-1")
    del world.network.blobs.statuses["download"]

    def is_posted() -> bool:
        clock.advance(0.1)
        return bool(posts(world, "in-1"))

    await soon(is_posted)
    assert "id" in (await posted(world, "in-1"))["image"]
