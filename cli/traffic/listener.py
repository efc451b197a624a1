"""Listener for copies of requests; Webapps connect to its Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from tidings.wire import tap
from tidings.wire.tap import Copied

# Maximum bytes of a record: its body, and 4 KiB for the other fields.
_MOST = tap.MAX_BODY + 4096


class Inlet(asyncio.Protocol):
    """One connection of a Webapp."""

    def __init__(self, take: Callable[[Copied], None]) -> None:
        self._take = take
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= tap.LENGTH:
            size = int.from_bytes(self._data[: tap.LENGTH], "big")
            if size > _MOST:
                self._transport.close()
                return
            if len(self._data) < tap.LENGTH + size:
                return
            record = bytes(self._data[tap.LENGTH : tap.LENGTH + size])
            del self._data[: tap.LENGTH + size]
            try:
                self._take(tap.decode(record))
            except msgspec.DecodeError:
                self._transport.close()
                return


@contextlib.asynccontextmanager
async def listening(path: Path, take: Callable[[Copied], None]) -> AsyncIterator[None]:
    """Listen on a Unix socket at `path` with mode 0600, and pass each copied request to `take`.

    A stale socket at the path is replaced. Raises `OSError`, `FileExistsError` when another listener uses the path.
    """
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
        await loop.create_unix_connection(asyncio.Protocol, str(path))
        raise FileExistsError(f"another process listens at {path}")
    _remove(path)
    server = await loop.create_unix_server(lambda: Inlet(take), str(path))
    _keep_private(path)
    try:
        yield
    finally:
        server.close()
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_socket():
        path.unlink()


def _keep_private(path: Path) -> None:
    path.chmod(0o600)
