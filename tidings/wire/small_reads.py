"""Small reads for unauthenticated connections: further data of their peers stays in the system's buffers."""

from __future__ import annotations

import asyncio
import threading
from typing import Protocol

SIZE = 4 * 1024  # bytes per read


class _Shared(threading.local):
    """Buffer shared by all connections of a thread's event loop: each read is copied out before the next one starts.

    A transport on uvloop keeps its first protocol, so one buffer per connection would live as long as the connection.
    """

    def __init__(self) -> None:
        self.buffer = bytearray(SIZE)


_shared = _Shared()


class DataReceiver(Protocol):
    """Protocol that receives the data, and later replaces `SmallReads`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


class SmallReads(asyncio.BufferedProtocol):
    """Protocol that forwards everything to another one, until that one replaces it at the transport."""

    __slots__ = ("_reader",)

    def __init__(self, reader: DataReceiver) -> None:
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
