"""Readers of stored files that never deliver a damaged file as complete."""

from __future__ import annotations

import asyncio
import hashlib
import logging

from prometheus_client import Counter

from tidings.media.reading import MediaReader
from tidings.storage.business.media import MediaRow

log = logging.getLogger(__name__)

DAMAGED = Counter("tidings_media_damaged_total", "Stored files that were found damaged when requested")


def note_damaged(found: MediaRow) -> None:
    """Count and log a file that differs from what was stored."""
    DAMAGED.inc()
    log.error("media.file_damaged", extra={"media": found.id, "file": found.file})


class BytesReader:
    """Reader of a file in memory."""

    def __init__(self, content: bytes) -> None:
        self._left = content

    async def read(self, size: int) -> bytes:
        found, self._left = self._left[:size], self._left[size:]
        return found

    async def close(self) -> None:
        self._left = b""


class CheckedReader:
    """Reader that verifies a file while it is read. The last bytes of a damaged file are withheld."""

    def __init__(self, reader: MediaReader, found: MediaRow) -> None:
        self._reader = reader
        self._found = found
        self._left = found.size
        self._digest = hashlib.sha256()

    async def read(self, size: int) -> bytes:
        block = await self._reader.read(min(size, self._left))
        self._left -= len(block)
        await asyncio.to_thread(self._digest.update, block)
        if block and not self._left and self._digest.hexdigest() != self._found.sha256:
            note_damaged(self._found)
            return b""
        return block

    async def close(self) -> None:
        await self._reader.close()
