"""One device of a fleet, on a separate TCP or WebSocket connection, with as little work as possible.

It acknowledges deliveries at once. The body of a measured message starts with a stamp.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import struct
import time
from typing import Any, Protocol, cast

import msgspec

from tidings.wire import device

TCP, WS_JSON, WS_MSGPACK = "tcp", "ws-json", "ws-msgpack"
SUBPROTOCOLS = {WS_JSON: "tidings.v1.json", WS_MSGPACK: "tidings.v1.msgpack"}
# Monotonic nanoseconds of the sending, and the message's number from its sender to its recipient, from 1.
STAMP = struct.Struct(">QI")
TAIL = b"<end>"
# Back-off of reconnection, seconds: first and longest; the actual delay is uniformly random up to it.
BACKOFF = 0.2, 10.0

_packed = msgspec.msgpack.Encoder().encode
_unpacked = msgspec.msgpack.Decoder(device.FromNetwork).decode
_as_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder(device.FromNetwork).decode
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10


def body(size: int, number: int) -> bytes:
    """Return the body of a message of `size` bytes, stamped with the current time."""
    return STAMP.pack(time.monotonic_ns(), number).ljust(size - len(TAIL), b"x") + TAIL


class DeviceListener(Protocol):
    """Receiver of a device's events."""

    is_closing: bool

    def attached(self, device: FleetDevice) -> None: ...

    def lost(self, device: FleetDevice) -> None:
        """Handle the loss of the connection. The owner reconnects the device if it is to come back."""
        ...

    def delivered(self, device: FleetDevice, frame: device.Deliver) -> None: ...

    def settled(self, device: FleetDevice, frame: device.Accepted | device.Refused) -> None: ...

    def failed(self, device: FleetDevice, reason: str) -> None:
        """Record that the network has closed the connection, or refused the login."""
        ...


class FleetDevice(asyncio.Protocol):
    """One device; `highest` is the number of the last stamped message that it received."""

    __slots__ = (
        "_data",
        "_is_open",
        "_listener",
        "_token",
        "_transport",
        "_way",
        "delay",
        "highest",
        "is_attached",
        "number",
    )

    def __init__(self, owner: DeviceListener, number: str, token: str, way: str) -> None:
        self._listener = owner
        self._token = token
        self._way = way
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._is_open = False
        self.delay = BACKOFF[0]
        self.number = number
        self.is_attached = False
        self.highest = 0

    def write(self, frame: msgspec.Struct) -> None:
        """Send one frame."""
        if self._transport is None:
            return
        if self._way == TCP:
            data = _packed(frame)
            self._transport.write(len(data).to_bytes(4, "big") + data)
        elif self._way == WS_JSON:
            self._transport.write(_masked(_TEXT, _as_json(frame)))
        else:
            self._transport.write(_masked(_BINARY, _packed(frame)))

    @property
    def is_connected(self) -> bool:
        """Return whether it has a connection, logged in or not."""
        return self._transport is not None

    def wait(self) -> float:
        """Return the seconds until the next attempt, and double the delay."""
        wait = random.uniform(0.0, self.delay)
        self.delay = min(2 * self.delay, BACKOFF[1])
        return wait

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._data.clear()
        self._is_open = self._way == TCP
        if self._is_open:
            self._log_in()
        else:
            key = base64.b64encode(os.urandom(16))
            self._transport.write(
                b"GET /v1/connect HTTP/1.1\r\nHost: network\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n"
                % (key, SUBPROTOCOLS[self._way].encode())
            )

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.is_attached, was_attached = False, self.is_attached
        if was_attached or not self._listener.is_closing:
            self._listener.lost(self)

    def data_received(self, data: bytes) -> None:
        if self._data:
            self._data += data
            data = bytes(self._data)
        end, position = len(data), 0
        acks: list[int] = []
        if not self._is_open:
            position = self._open(data)
        while self._is_open and self._transport is not None:
            size = self._frame(data, position, end, acks)
            if not size:
                break
            position += size
        self._data[:] = data[position:]
        if acks:
            self.write(device.Ack(n=acks))

    def _frame(self, data: bytes, position: int, end: int, acks: list[int]) -> int:
        """Process one complete frame; returns its size in bytes, 0 while it is incomplete."""
        if self._way == TCP:
            size = 4 + int.from_bytes(data[position : position + 4], "big") if end - position >= 4 else 0
            if not size or end - position < size:
                return 0
            self._take(_unpacked(memoryview(data)[position + 4 : position + size]), acks)
            return size
        if end - position < 2:
            return 0
        head, size, start = data[position] & 15, data[position + 1], position + 2
        if size > 125:
            start += 2 if size == 126 else 8
            size = int.from_bytes(data[position + 2 : start], "big")
        if end < start + size:
            return 0
        payload = memoryview(data)[start : start + size]
        if head in (_TEXT, _BINARY):
            self._take((_from_json if head == _TEXT else _unpacked)(payload), acks)
        elif head == _PING and self._transport is not None:
            self._transport.write(_masked(_PONG, bytes(payload)))
        elif head == _CLOSE:
            self.close()
        return start + size - position

    def _open(self, data: bytes) -> int:
        end = data.find(b"\r\n\r\n") + 4
        if end < 4:
            return 0
        if not data.startswith(b"HTTP/1.1 101 "):
            self._listener.failed(self, data[9:12].decode())
            self.close()
            return end
        self._is_open = True
        self._log_in()
        return end

    def _log_in(self) -> None:
        self.write(device.Login(n=0, number=self.number, token=self._token))

    def _take(self, frame: Any, acks: list[int]) -> None:
        if isinstance(frame, device.Deliver):
            acks.append(frame.n)
            self._listener.delivered(self, frame)
        elif isinstance(frame, device.Accepted | device.Refused):
            self._listener.settled(self, frame)
        elif isinstance(frame, device.Ok):
            self.is_attached = True
            self.delay = BACKOFF[0]
            self._listener.attached(self)
        elif isinstance(frame, device.Closing | device.Failed):
            self._listener.failed(self, frame.reason)
            self.close()


def _masked(opcode: int, data: bytes) -> bytes:
    """Return a client's frame with a mask of zeros: there is no browser, and no proxy to protect."""
    size = len(data)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 65536:
        head = bytes((0x80 | opcode, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + b"\0\0\0\0" + data
