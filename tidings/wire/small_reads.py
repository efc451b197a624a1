"""Small reads for a connection whose peer has proved nothing: what it sends beyond them stays with the system."""

from __future__ import annotations

import asyncio
import threading
from typing import Protocol

# Bytes of one read.
SIZE = 4 * 1024


class _Shared(threading.local):
    """The buffer of all connections of a thread's loop: what a read has brought leaves it before the next begins.

    A transport on uvloop keeps the protocol that it began with, so one of each would stay for as long as it is open.
    """

    def __init__(self) -> None:
        self.buffer = bytearray(SIZE)


_shared = _Shared()


class Reader(Protocol):
    """The protocol that takes over."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


class SmallReads(asyncio.BufferedProtocol):
    """Everything for another protocol, until that becomes its transport's own."""

    __slots__ = ("_reader",)

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._reader.connection_made(transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return _shared.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.data_received(bytes(memoryview(_shared.buffer)[:nbytes]))

    def pause_writing(self) -> None:
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        self._reader.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._reader.connection_lost(exc)
