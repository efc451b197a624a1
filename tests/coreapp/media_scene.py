"""Helpers for media tests: uploaded files, messages that name them, and recipients that check what arrives."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tidings.media import kinds
from tidings.objects.directory import DirectoryStore
from tidings.objects.store import FileStore
from tidings.storage.business import media
from tidings.storage.business.media import MediaRow
from tidings.wire import core
from tidings.wire import device as frames

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8


def directory(world: World) -> DirectoryStore:
    found = DirectoryStore(world.settings.media_dir)
    found.prepare()
    return found


def read(path: str) -> bytes:
    """Read a file as a business on the same machine does."""
    return Path(path).read_bytes()


async def chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def upload(
    world: World,
    content: bytes = PNG,
    *,
    kind: str = "image",
    mime_type: str = "image/png",
    used_at: int = 1,
    files: FileStore | None = None,
    **more: Any,
) -> MediaRow:
    """Store a file as `POST /v1/media` does.

    files: store for the file; None for the directory of the world.
    """
    stored = await (files or directory(world)).write(chunks(content), limit=kinds.MAX_SIZE)
    assert stored.sha256 == hashlib.sha256(content).hexdigest()
    row = MediaRow(
        str(uuid.uuid4()),
        BUSINESS,
        kind,
        mime_type,
        stored.size,
        stored.sha256,
        stored.name,
        more.pop("filename", ""),
        used_at,
        used_at,
        **more,
    )
    async with world.database.transaction() as connection:
        await media.add_all(connection, [row])
    return row


async def find(world: World, media_id: str) -> MediaRow | None:
    async with world.database.reading() as connection:
        return await media.find(connection, BUSINESS, media_id)


async def send(running: Running, to: str, content: dict[str, Any]) -> core.Accepted:
    """Send a message with media objects, as the Webapp passes it on."""
    encoded = json.dumps(content, separators=(",", ":")).encode()
    response = await running.client.call(
        lambda n: core.AcceptMessage(n, BUSINESS, to, content["type"], encoded, has_media=True)
    )
    assert isinstance(response, core.Accepted), response
    return response


async def send_image(running: Running, to: str, media_id: str, **more: Any) -> core.Accepted:
    return await send(running, to, {"type": "image", "image": {"id": media_id, **more}})


class Inbox:
    """Decrypts what arrives, each id once, in the order of arrival for each recipient."""

    def __init__(self, world: World, *phones: Phone) -> None:
        self.world = world
        self.phones = {phone.number: phone for phone in phones}
        self.contents: dict[str, list[Any]] = {phone.number: [] for phone in phones}
        self.seen: dict[str, bytes] = {}
        world.network.policy = self

    def __call__(self, send: frames.Send) -> str | None:
        if send.id not in self.seen:
            self.seen[send.id] = send.body
            self.contents[send.to].append(self.phones[send.to].read(send.kind, send.body))
        return None

    async def until(self, count: int) -> None:
        await self.world.network.signals.until(lambda: len(self.seen) >= count)


async def failure(world: World, message_id: str) -> dict[str, Any]:
    """Return the error of a message's failed status, once it is posted."""
    await world.sink.signals.until(lambda: (message_id, "failed") in world.sink.labels())
    (post,) = [post for post in world.sink.taken() if post.label == (message_id, "failed")]
    (error,) = post.body["statuses"][0]["errors"]
    found: dict[str, Any] = error
    return found
