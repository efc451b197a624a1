"""The disk for media is full or unusable: messages that name a link wait for it, and no others do."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from coreapp.media import links
from tests.coreapp import media_scene as scene
from tests.coreapp.conftest import Running, World
from tests.coreapp.signals import Signals
from tests.web_server import serving

NUMBER = "15550110001"
OTHER = "15550110002"


class Server:
    """External web server with one picture."""

    def __init__(self) -> None:
        self.signals = Signals()
        self.requests = 0
        self.url = ""

    async def handle(self, _: web.Request) -> web.Response:
        self.requests += 1
        self.signals.changed()
        return web.Response(body=scene.PNG, content_type="image/png")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_get("/{path:.*}", server.handle)
    async with serving(app) as server.url:
        yield server


class Waits(logging.Handler):
    """Number of times that a link was found waiting for the disk, from the log."""

    def __init__(self) -> None:
        super().__init__()
        self.signals = Signals()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "media.disk_away":
            self.count += 1
            self.signals.changed()

    async def more(self, by: int = 3) -> None:
        enough = self.count + by
        await self.signals.until(lambda: self.count >= enough)


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waits]:
    monkeypatch.setattr(links, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(links, "LAST_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(links, "RETRY_SECONDS", 0.01)
    waits = Waits()
    links.log.addHandler(waits)
    yield waits
    links.log.removeHandler(waits)


@contextlib.contextmanager
def disk(where: Path, size: int) -> Iterator[Path]:
    """Mount a disk of `size` bytes. This needs root."""
    where.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tidings-test", where], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no disk of our own: {done.stderr.decode().strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", where], check=True)


async def begin(world: World, **more: object) -> tuple[Running, scene.Inbox]:
    phones = world.add_phones(NUMBER, OTHER)
    inbox = scene.Inbox(world, *phones)
    running = await world.start(**more)
    await world.connected(running)
    await running.client.check(NUMBER, OTHER)
    return running, inbox


async def send_links(running: Running, server: Server, count: int) -> list[str]:
    """Send messages with links to one recipient, one after the other."""
    sent = []
    for number in range(count):
        content = {"type": "image", "image": {"link": f"{server.url}/{number}.png"}}
        sent.append((await scene.send(running, NUMBER, content)).id)
    return sent


async def all_went(world: World, inbox: scene.Inbox, sent: list[str]) -> None:
    await world.network.signals.until(lambda: len(inbox.contents[NUMBER]) == len(sent))
    for content in inbox.contents[NUMBER]:
        assert world.network.blobs.read(content["image"]) == scene.PNG
    for message in sent:
        await world.sink.signals.until(lambda message=message: world.sink.statuses_of(message) == ["sent"])


async def test_messages_with_links_wait_on_a_full_disk_and_are_sent_once_there_is_space(
    world: World, server: Server, waits: Waits, tmp_path: Path
) -> None:
    with disk(tmp_path / "disk", 256 * 1024) as where:
        ballast = where / "ballast"
        with contextlib.suppress(OSError):
            ballast.write_bytes(bytes(512 * 1024))
        running, inbox = await begin(world, media_dir=where)
        # More than may be on the Coreapp's disk at once.
        sent = await send_links(running, server, links.AT_ONCE + 2)
        await waits.more()
        await running.client.send(OTHER, "past them")
        await world.network.signals.until(lambda: bool(inbox.contents[OTHER]))
        await waits.more()
        assert server.requests == 0
        assert all(world.sink.statuses_of(message) == [] for message in sent)
        ballast.unlink()
        await all_went(world, inbox, sent)
        assert [path.name for path in where.iterdir()] == []
        await running.stopped()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE])
async def test_a_disk_error_during_a_download_keeps_the_message_queued(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch, waits: Waits, code: int
) -> None:
    running, inbox = await begin(world)
    fsync, media_dir = os.fsync, world.settings.media_dir

    def refuse(descriptor: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent == media_dir:
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        sent = await send_links(running, server, 1)
        await server.signals.until(lambda: server.requests > links.TRIES)
        assert world.sink.statuses_of(sent[0]) == []
    await all_went(world, inbox, sent)
    await running.stopped()
    assert list(media_dir.iterdir()) == []


async def test_a_disk_that_hangs_longer_than_the_timeout_of_the_link_keeps_the_message_queued(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, inbox = await begin(world, media_link_timeout=2.0)
    fsync, media_dir, loop = os.fsync, world.settings.media_dir, asyncio.get_running_loop()
    works, hung = threading.Event(), False

    def hang(descriptor: int) -> None:
        nonlocal hung
        if not hung and Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent == media_dir:
            hung = True
            loop.call_soon_threadsafe(loop.call_later, 3.0, works.set)
            works.wait()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", hang)
    sent = await send_links(running, server, 1)
    await all_went(world, inbox, sent)
    assert server.requests > 1
    await running.stopped()
    assert list(media_dir.iterdir()) == []


async def test_a_message_waits_while_no_file_descriptor_is_free(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch, waits: Waits
) -> None:
    running, inbox = await begin(world)
    tries = 0

    async def refuse(*_: object) -> socket.socket:
        nonlocal tries
        tries += 1
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr("tidings.egress.guard._dial", refuse)
        sent = await send_links(running, server, 1)
        await waits.signals.until(lambda: tries > links.TRIES)
        assert world.sink.statuses_of(sent[0]) == []
    await all_went(world, inbox, sent)


async def test_the_disk_reserve_counts_as_full_and_waiting_messages_survive_a_stop(
    world: World, server: Server, waits: Waits
) -> None:
    running, inbox = await begin(world, media_reserve=2**62)
    sent = await send_links(running, server, 2)
    await waits.more()
    assert world.sink.statuses_of(sent[0]) == []
    async with asyncio.timeout(30):
        await running.stopped()
    await world.connected(await world.start())
    await all_went(world, inbox, sent)
