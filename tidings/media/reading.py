"""Files read piece by piece without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import IO, Protocol, TypeVar

Result = TypeVar("Result")


class Reader(Protocol):
    """A file that is read once, from its beginning."""

    async def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer only at the end. Raises `OSError` when they cannot be read now."""
        ...

    async def close(self) -> None:
        """Release what reading takes. May be called again."""
        ...


OpenReader = Callable[[], Awaitable[Reader]]


class FileReader:
    """A file on this machine, read in threads."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    async def read(self, size: int) -> bytes:
        return await to_the_end(lambda: self._file.read(size))

    async def close(self) -> None:
        # Closing a file that was read does not wait for the disk.
        self._file.close()


def local(open_file: Callable[[], IO[bytes]]) -> OpenReader:
    """Opens a file on this machine, in a thread."""

    async def open_reader() -> Reader:
        return FileReader(await asyncio.to_thread(open_file))

    return open_reader


async def to_the_end(step: Callable[[], Result]) -> Result:
    """Run a step in a thread. A caller that is cancelled, however often, waits for it, so that no two steps ever run at
    the same time."""
    running = asyncio.ensure_future(asyncio.to_thread(step))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # The caller wants no result; an error of the step is retrieved, so that it is not reported as lost.
        running.exception()
        raise cancelled
    return running.result()
