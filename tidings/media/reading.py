"""Reading of files piece by piece without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import IO, Protocol, TypeVar

Result = TypeVar("Result")


class MediaReader(Protocol):
    """A file that is read once, from its start."""

    async def read(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer only at the end. Raises `OSError` when they cannot be read now."""

    async def close(self) -> None:
        """Release resources. May be called again."""


OpenReader = Callable[[], Awaitable[MediaReader]]


class FileReader:
    """A local file, read in threads."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    async def read(self, size: int) -> bytes:
        return await to_the_end(lambda: self._file.read(size))

    async def close(self) -> None:
        # Closing a file that was only read does not wait for the disk.
        self._file.close()


def local(open_file: Callable[[], IO[bytes]]) -> OpenReader:
    """Return a function that opens a local file in a thread."""

    async def open_reader() -> MediaReader:
        return FileReader(await asyncio.to_thread(open_file))

    return open_reader


async def to_the_end(step: Callable[[], Result]) -> Result:
    """Run a step in a thread. A cancelled caller still waits for it, so that two steps never run at the same time."""
    running = asyncio.ensure_future(asyncio.to_thread(step))
    cancelled: asyncio.CancelledError | None = None
    try:
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            # The result is dropped; retrieve an error of the step, so that it is not reported as lost.
            running.exception()
            raise cancelled
        return running.result()
    finally:
        # An exception keeps this frame, which must not keep the exception: nothing would be freed until a collection.
        del running, cancelled
