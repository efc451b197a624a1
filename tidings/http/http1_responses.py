"""HTTP/1.1 responses in one write: uvicorn writes head and body separately, which wakes the client twice."""

from __future__ import annotations

import asyncio

_GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


class ResponseTransport:
    """Transport of one response: writes its head together with what follows, in one segment rather than two."""

    __slots__ = ("_head", "_is_begun", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_begun = False
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            self._transport.write(self._head + data)
            self._head = b""
        elif self._is_begun or data == _GO_ON:
            self._transport.write(data)
        else:
            self._is_begun = True
            self._head = data

    def flush(self) -> None:
        """Write the head when nothing follows it."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()
