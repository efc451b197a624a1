"""Small reads for a connection whose peer has proved nothing: what it sends beyond them stays with the system."""

from __future__ import annotations

import asyncio
from typing import Protocol

# Bytes of one read.
SIZE = 4 * 1024


class Reader(Protocol):
    """The protocol that takes over."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


class SmallReads(asyncio.BufferedProtocol):
    """Everything for another protocol, until that becomes its transport's own."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._buffer = bytearray(SIZE)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._reader.connection_made(transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.data_received(bytes(memoryview(self._buffer)[:nbytes]))

    def pause_writing(self) -> None:
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        self._reader.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._reader.connection_lost(exc)
