"""Messages with files: stored in the network once, in order, and again after a crash."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from coreapp.media import stored, uploads
from harness import metrics, polling
from tests.coreapp import media_scene as scene
from tests.coreapp.conftest import Running, World
from tests.coreapp.scripted_blobs import DAY
from tests.manual_clock import ManualClock
from tidings.aio.clock import SystemClock
from tidings.client.http import NetworkApi
from tidings.objects import identity
from tidings.objects.directory import DirectoryStore
from tidings.storage.business import jobs, media

NUMBER = "15550110001"
OTHER = "15550110002"


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "FIRST_RETRY_SECONDS", 0.01)


async def begin(world: World, *numbers: str, **more: Any) -> tuple[Running, scene.Inbox]:
    """Start a Coreapp, and recipients that it knows."""
    phones = world.add_phones(*(numbers or (NUMBER,)))
    inbox = scene.Inbox(world, *phones)
    running = await world.start(**more)
    await world.connected(running)
    await running.client.check(*(phone.number for phone in phones))
    return running, inbox


async def known(world: World, running: Running, inbox: scene.Inbox) -> None:
    """Open sessions with all recipients: from then on texts take the fast path."""
    for number in inbox.phones:
        await running.client.send(number, "hello")
    await inbox.until(len(inbox.phones))


async def test_a_recipient_gets_a_pointer_and_reads_the_same_file(world: World) -> None:
    running, inbox = await begin(world)
    medium = await scene.upload(world)
    response = await scene.send_image(running, NUMBER, medium.id, caption="A cat")
    await inbox.until(1)
    (content,) = inbox.contents[NUMBER]
    assert content["type"] == "image"
    pointer = content["image"]
    assert set(pointer) == {"blob", "key", "digest", "size", "mime_type", "sha256", "caption"}
    assert (pointer["mime_type"], pointer["caption"]) == ("image/png", "A cat")
    assert world.network.blobs.read(pointer) == scene.PNG
    await world.sink.signals.until(lambda: world.sink.statuses_of(response.id) == ["sent"])
    kept = await scene.find(world, medium.id)
    assert kept is not None
    assert kept.blob is not None
    # The key that opens the file must not be readable in the row.
    assert pointer["blob"].encode() not in kept.blob
    assert kept.used_at > 1


async def test_one_blob_serves_many_messages_even_during_its_upload(world: World) -> None:
    numbers = [f"1555011{n:04}" for n in range(20)]
    running, inbox = await begin(world, *numbers)
    medium = await scene.upload(world)
    world.network.blobs.gate = asyncio.Event()
    await asyncio.gather(*(scene.send_image(running, number, medium.id) for number in numbers))
    await world.network.signals.until(lambda: world.network.blobs.uploads == 1)
    world.network.blobs.gate.set()
    await inbox.until(20)
    for number in numbers:
        await scene.send_image(running, number, medium.id)
    await inbox.until(40)
    assert world.network.blobs.uploads == 1
    blobs = {content["image"]["blob"] for contents in inbox.contents.values() for content in contents}
    assert len(blobs) == 1


async def test_a_message_with_a_cached_pointer_is_encrypted_at_once(world: World) -> None:
    running, inbox = await begin(world)
    await known(world, running, inbox)
    medium = await scene.upload(world)
    await scene.send_image(running, NUMBER, medium.id)
    await inbox.until(2)
    at_once = metrics.value("tidings_messages_accepted_total", encrypted="at once")
    await scene.send_image(running, NUMBER, medium.id)
    assert metrics.value("tidings_messages_accepted_total", encrypted="at once") == at_once + 1
    await inbox.until(3)


async def test_texts_wait_only_behind_an_image_to_the_same_recipient(world: World) -> None:
    running, inbox = await begin(world, NUMBER, OTHER)
    await known(world, running, inbox)
    medium, second = await scene.upload(world), await scene.upload(world, scene.PNG + b"2")
    world.network.blobs.gate = asyncio.Event()
    await running.client.send(NUMBER, "before")
    await scene.send_image(running, NUMBER, medium.id)
    await running.client.send(NUMBER, "between")
    await scene.send_image(running, NUMBER, second.id)
    await running.client.send(NUMBER, "after")
    await running.client.send(OTHER, "past them")
    await inbox.until(4)
    assert [content["text"]["body"] for content in inbox.contents[OTHER]] == ["hello", "past them"]
    assert [content["text"]["body"] for content in inbox.contents[NUMBER]] == ["hello", "before"]
    world.network.blobs.gate.set()
    await inbox.until(8)
    kinds = [content.get("text", {}).get("body") or content["type"] for content in inbox.contents[NUMBER]]
    assert kinds == ["hello", "before", "image", "between", "image", "after"]
    assert world.network.blobs.read(inbox.contents[NUMBER][4]["image"]) == scene.PNG + b"2"
    # The queue is empty: the next text takes the fast path again.
    await running.client.send(NUMBER, "fast")
    await inbox.until(9)


async def test_every_media_field_of_a_content_gets_its_pointer(world: World) -> None:
    running, inbox = await begin(world)
    medium = await scene.upload(world)
    paper = await scene.upload(world, b"%PDF-1.7 ...", kind="document", mime_type="application/pdf", filename="a.pdf")
    parameters = [{"type": "image", "image": {"id": medium.id}}]
    template = {
        "name": "t",
        "components": [
            {"type": "header", "parameters": parameters},
            {"type": "body", "parameters": [{"type": "text", "text": "x"}]},
        ],
    }
    await scene.send(running, NUMBER, {"type": "template", "template": template})
    header = {"type": "document", "document": {"id": paper.id}}
    await scene.send(running, NUMBER, {"type": "interactive", "interactive": {"type": "button", "header": header}})
    await scene.send(running, NUMBER, {"type": "document", "document": {"id": paper.id, "filename": "b.pdf"}})
    await inbox.until(3)
    first, second, third = inbox.contents[NUMBER]
    components = first["template"]["components"]
    assert world.network.blobs.read(components[0]["parameters"][0]["image"]) == scene.PNG
    assert components[1] == template["components"][1]
    assert second["interactive"]["header"]["document"]["filename"] == "a.pdf"
    assert third["document"]["filename"] == "b.pdf"
    assert world.network.blobs.read(third["document"]) == b"%PDF-1.7 ..."


async def test_unknown_media_fail_the_message_and_name_the_field(world: World) -> None:
    running, inbox = await begin(world)
    response = await scene.send_image(running, NUMBER, "no-such-id")
    after = await running.client.send(NUMBER, "after")
    error = await scene.failure(world, response.id)
    assert error == {
        "code": 1006,
        "title": "Resource not found",
        "details": "image.id: there is no media no-such-id",
    }
    await inbox.until(1)
    await world.sink.signals.until(lambda: world.sink.statuses_of(after.id) == ["sent"])


async def test_a_missing_or_damaged_file_fails_the_message(world: World) -> None:
    running, _ = await begin(world)
    gone, short, other = [await scene.upload(world) for _ in range(3)]
    directory = scene.directory(world)
    directory.path(gone.file).unlink()
    directory.path(short.file).write_bytes(scene.PNG[:-1])
    directory.path(other.file).write_bytes(scene.PNG[:-1] + b"x")
    responses = [await scene.send_image(running, NUMBER, medium.id) for medium in (gone, short, other)]
    errors = [await scene.failure(world, response.id) for response in responses]
    assert [(error["code"], error["details"]) for error in errors] == [
        (1006, "image.id: the file no longer exists"),
        (500, "image.id: the file cannot be read"),
        (500, "image.id: the file cannot be read"),
    ]
    assert not world.network.blobs.stored


async def test_an_unexpected_error_fails_one_message_and_not_the_shard(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, inbox = await begin(world)
    medium = await scene.upload(world)

    async def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(uploads.Uploader, "_try", fail)
        response = await scene.send_image(running, NUMBER, medium.id)
        error = await scene.failure(world, response.id)
    assert (error["code"], error["details"]) == (500, "the file cannot be prepared")
    await scene.send_image(running, NUMBER, medium.id)
    await inbox.until(1)


async def test_a_long_database_outage_reopens_the_shard_without_loss(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, inbox = await begin(world)
    medium = await scene.upload(world)
    shard = running.shard
    # Before that its commit may wait for another, and a change that waits when the shard breaks was not committed.
    is_accepted = asyncio.Event()

    async def fail(*_: Any, **__: Any) -> Any:
        await is_accepted.wait()
        raise ConnectionError("the database is unreachable")

    with monkeypatch.context() as patch:
        patch.setattr(stored.StoredMedia, "find", fail)
        response = await scene.send_image(running, NUMBER, medium.id)
        is_accepted.set()
        await asyncio.wait([shard.context.journal.broken])
    await inbox.until(1)
    await world.sink.signals.until(lambda: world.sink.statuses_of(response.id) == ["sent"])


async def test_a_message_waits_while_the_network_is_unavailable(world: World) -> None:
    running, inbox = await begin(world)
    medium = await scene.upload(world)
    world.network.blobs.statuses["upload"] = 503
    response = await scene.send_image(running, NUMBER, medium.id)
    await world.network.signals.until(lambda: world.network.blobs.uploads >= 3)
    assert world.sink.statuses_of(response.id) == []
    del world.network.blobs.statuses["upload"]
    await inbox.until(1)
    assert world.network.blobs.read(inbox.contents[NUMBER][0]["image"]) == scene.PNG


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.ESTALE])
async def test_a_message_with_an_unreadable_file_waits_and_others_are_sent(
    world: World, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    running, inbox = await begin(world, NUMBER, OTHER)
    medium = await scene.upload(world)
    tries, is_away, loop, open_ = 0, True, asyncio.get_running_loop(), DirectoryStore.open_file

    def refuse(files: DirectoryStore, name: str) -> BinaryIO:
        nonlocal tries
        tries += 1
        loop.call_soon_threadsafe(world.network.signals.changed)
        if is_away:
            raise OSError(code, os.strerror(code))
        return open_(files, name)

    monkeypatch.setattr(DirectoryStore, "open_file", refuse)
    response = await scene.send_image(running, NUMBER, medium.id)
    await running.client.send(NUMBER, "behind")
    await running.client.send(OTHER, "past them")
    await inbox.until(1)
    assert inbox.contents[OTHER][0]["text"]["body"] == "past them"
    await world.network.signals.until(lambda: tries >= 3)
    assert world.sink.statuses_of(response.id) == []
    is_away = False
    await inbox.until(3)
    assert [content["type"] for content in inbox.contents[NUMBER]] == ["image", "text"]
    assert world.network.blobs.read(inbox.contents[NUMBER][0]["image"]) == scene.PNG


async def test_a_message_waits_until_its_media_directory_is_mounted(world: World, tmp_path: Path) -> None:
    running, inbox = await begin(world)
    await identity.of_media(world.database, running.node.process.files).claim()
    medium = await scene.upload(world)
    directory = world.settings.media_dir
    directory.rename(tmp_path / "away")
    # An empty mount point, as after a reboot.
    directory.mkdir()
    waiting = metrics.value("tidings_media_uploads_total", type="image", result="unreadable")
    response = await scene.send_image(running, NUMBER, medium.id)
    await polling.until(
        lambda: metrics.value("tidings_media_uploads_total", type="image", result="unreadable") >= waiting + 3
    )
    assert world.sink.statuses_of(response.id) == []
    directory.rmdir()
    (tmp_path / "away").rename(directory)
    await inbox.until(1)
    assert world.network.blobs.read(inbox.contents[NUMBER][0]["image"]) == scene.PNG


async def test_deleting_an_unreadable_file_fails_the_message(
    world: World,
) -> None:
    running, _ = await begin(world)
    medium = await scene.upload(world)
    path = scene.directory(world).path(medium.file)
    # A directory in the place of the file, which even root cannot read as a file.
    path.unlink()
    path.mkdir()
    response = await scene.send_image(running, NUMBER, medium.id)
    path.rmdir()
    error = await scene.failure(world, response.id)
    assert (error["code"], error["details"]) == (1006, "image.id: the file no longer exists")


async def test_a_refusal_of_the_file_by_the_network_fails_the_message(world: World) -> None:
    running, _ = await begin(world)
    medium = await scene.upload(world)
    world.network.blobs.statuses["upload"] = 413
    response = await scene.send_image(running, NUMBER, medium.id)
    error = await scene.failure(world, response.id)
    assert (error["code"], error["details"]) == (500, "image.id: the network refuses the file: HTTP 413")


@pytest.mark.parametrize("window", ["during the upload", "after the upload, before its row", "after its row"])
async def test_after_a_kill_the_message_is_sent_once_and_in_order(world: World, window: str) -> None:
    running, inbox = await begin(world)
    await known(world, running, inbox)
    medium = await scene.upload(world)
    reached = asyncio.Event()
    encryption, uploader = running.shard.sending.encryption, uploads.Uploader
    original: Any = uploader._try

    async def until_stored(*given: Any, **named: Any) -> None:
        await original(*given, **named)
        reached.set()
        await asyncio.Event().wait()

    async def unserved(peers: Any) -> None:
        reached.set()
        await encryption._closing.wait()

    with pytest.MonkeyPatch.context() as patch:
        if window == "during the upload":
            world.network.blobs.gate = asyncio.Event()
        elif window == "after the upload, before its row":
            patch.setattr(uploader, "_try", until_stored)
        else:
            # The message has left the media queue and waits for its session as it is on disk: not encrypted.
            patch.setattr(encryption, "_serve", unserved)
        response = await scene.send_image(running, NUMBER, medium.id)
        await running.client.send(NUMBER, "after")
        await world.network.signals.until(lambda: world.network.blobs.uploads == 1)
        if world.network.blobs.gate is None:
            await reached.wait()
        await running.killed()
    if world.network.blobs.gate is not None:
        world.network.blobs.gate.set()
    async with world.database.reading() as connection:
        assert await jobs.count(connection) == 2
    again = await world.start(node="second")
    await world.connected(again)
    await inbox.until(3)
    contents = [content["type"] for content in inbox.contents[NUMBER]]
    assert contents == ["text", "image", "text"]
    assert world.network.blobs.read(inbox.contents[NUMBER][1]["image"]) == scene.PNG
    await world.sink.signals.until(lambda: world.sink.statuses_of(response.id) == ["sent"])
    assert world.network.blobs.uploads == (1 if window == "after its row" else 2)


async def test_a_clean_stop_leaves_waiting_messages_to_the_next_owner(world: World) -> None:
    running, inbox = await begin(world)
    medium = await scene.upload(world)
    world.network.blobs.statuses["upload"] = 503
    await scene.send_image(running, NUMBER, medium.id)
    await running.client.send(NUMBER, "after")
    await running.stopped()
    del world.network.blobs.statuses["upload"]
    again = await world.start(node="second")
    await world.connected(again)
    await inbox.until(2)
    assert [content["type"] for content in inbox.contents[NUMBER]] == ["image", "text"]


async def test_a_blob_is_uploaded_again_a_week_before_it_expires(world: World) -> None:
    clock = ManualClock(SystemClock().now())
    running, inbox = await begin(world, clock=clock)
    medium = await scene.upload(world)
    world.network.blobs.lifetime = 14 * DAY

    async def blob() -> str:
        # The cached state of a contact expires after a week too.
        await running.client.check(NUMBER)
        await scene.send_image(running, NUMBER, medium.id)
        await inbox.until(len(inbox.seen) + 1)
        return str(inbox.contents[NUMBER][-1]["image"]["blob"])

    first = await blob()
    clock.advance(6.9 * DAY)
    assert await blob() == first
    clock.advance(0.2 * DAY)
    second = await blob()
    assert second != first
    assert world.network.blobs.uploads == 2
    kept = await scene.find(world, medium.id)
    assert kept is not None
    assert kept.used_at == int(clock.now() * 1000)


async def test_a_cached_pointer_expires_after_an_hour(world: World) -> None:
    clock = ManualClock(SystemClock().now())
    running, inbox = await begin(world, clock=clock)
    medium = await scene.upload(world)
    await scene.send_image(running, NUMBER, medium.id)
    await inbox.until(1)
    async with world.database.transaction() as connection:
        await media.take(connection, medium.account, medium.id)
    await scene.send_image(running, NUMBER, medium.id)
    await inbox.until(2)
    clock.advance(stored.IN_MEMORY_SECONDS + 1)
    response = await scene.send_image(running, NUMBER, medium.id)
    assert (await scene.failure(world, response.id))["code"] == 1006


async def test_a_large_file_is_uploaded_in_constant_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    running, inbox = await begin(world)
    original = NetworkApi.upload_blob

    async def counted(api: NetworkApi, device: Any, chunks: Any, size: int) -> Any:
        async def passing() -> Any:
            async for chunk in chunks:
                sizes.append(len(chunk))
                yield chunk

        return await original(api, device, passing(), size)

    monkeypatch.setattr(NetworkApi, "upload_blob", counted)
    content = bytes(range(256)) * 4096 * 20
    medium = await scene.upload(world, content, kind="document", mime_type="application/zip")
    await scene.send(running, NUMBER, {"type": "document", "document": {"id": medium.id}})
    await inbox.until(1)
    assert world.network.blobs.read(inbox.contents[NUMBER][0]["document"]) == content
    assert max(sizes) <= 1024 * 1024
