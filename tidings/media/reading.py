"""Reading of files piece by piece without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextvars
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


# Bytes that are read when a file is opened. Most files are no longer: they need one step in a thread.
AHEAD = 64 * 1024


class FileReader:
    """A local file, read in threads. Make one with `open_ahead`."""

    def __init__(self, file: IO[bytes], ahead: bytes) -> None:
        """ahead: the next bytes of the file, which have been read; fewer than `AHEAD` only at its end."""
        self._file = file
        self._ahead = ahead
        self._is_whole = len(ahead) < AHEAD

    async def read(self, size: int) -> bytes:
        found, self._ahead = self._ahead[:size], self._ahead[size:]
        if self._is_whole or len(found) == size:
            return found
        return found + await to_the_end(lambda: self._file.read(size - len(found)))

    async def close(self) -> None:
        # Closing a file that was only read does not wait for the disk.
        self._file.close()


def open_ahead(file: IO[bytes]) -> FileReader:
    """Return the reader of an open file, from its position on. Call this in a thread: it reads. Raises `OSError`, and
    closes the file then."""
    try:
        return FileReader(file, file.read(AHEAD))
    except BaseException:
        file.close()
        raise


def local(open_file: Callable[[], IO[bytes]]) -> OpenReader:
    """Return a function that opens a local file in a thread."""

    async def open_reader() -> MediaReader:
        return await asyncio.to_thread(lambda: open_ahead(open_file()))

    return open_reader


async def to_the_end(step: Callable[[], Result]) -> Result:
    """Run a step in a thread. A cancelled caller still waits for it, so that two steps never run at the same time."""
    # `asyncio.to_thread` would add a task.
    running = asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, step)
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
