"""Thousands of devices of the network, each on a separate connection: log in, acknowledge and reconnect."""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import aiohttp
import msgspec

from tidings.e2ee.prekeys import SignedPreKey
from tidings.e2ee.xeddsa import IdentityKeyPair
from tidings.wire import device

# Registrations in one request, and concurrent connection attempts.
BULK, DIALS = 500, 64
# Back-off of reconnection, seconds: first and longest; the actual delay is uniformly random up to it.
BACKOFF = 0.1, 5.0

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(device.FromNetwork).decode

Address = tuple[str, int]


async def register(url: str, key: str, numbers: Sequence[str]) -> dict[str, str]:
    """Register numbers, all with the same keys and without one-time pre-keys; returns their tokens."""
    me = IdentityKeyPair.generate()
    signed = SignedPreKey.generate(me, 1)
    keys = {
        "registration_id": 1,
        "identity_key": _text(me.public),
        "signed_prekey": {"key_id": 1, "public": _text(signed.public), "signature": _text(signed.signature)},
        "prekeys": [],
    }
    tokens: dict[str, str] = {}
    async with aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {key}"}) as http:
        for start in range(0, len(numbers), BULK):
            body = {"registrations": [{"number": number, **keys} for number in numbers[start : start + BULK]]}
            async with http.post("/v1/registrations/bulk", json=body) as response:
                response.raise_for_status()
                for entry in (await response.json())["registrations"]:
                    tokens[entry["number"]] = entry["token"]
    return tokens


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class LightDevice(asyncio.Protocol):
    """One device, which stays connected to one of several addresses until it is closed.

    Sends are repeated on the next connection until they have a response.
    """

    def __init__(self, crowd: LightDevices, number: str, token: str) -> None:
        self._crowd = crowd
        self._token = token
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._numbers = itertools.count(1)
        self._pending: dict[int, device.Send] = {}
        self._delay = BACKOFF[0]
        self.number = number
        self.is_attached = False
        # Deliveries by id of the envelope.
        self.received: collections.Counter[str] = collections.Counter()
        # Event-loop time at which this device's sends were accepted, by id.
        self.accepted: dict[str, float] = {}
        # Reasons for refusals of this device's sends, by id.
        self.refused: dict[str, str] = {}
        self.closings: list[str] = []

    def send(self, to: str, id: str, **more: Any) -> None:
        """Send one envelope, now or as soon as there is a connection."""
        n = next(self._numbers)
        frame = device.Send(
            n=n, sender=self.number, to=to, id=id, **{"kind": device.MESSAGE, "body": b"sealed", **more}
        )
        self._pending[n] = frame
        if self.is_attached:
            self._write(frame)

    @property
    def pending(self) -> int:
        """Envelopes without a response."""
        return len(self._pending)

    async def dial(self) -> None:
        """Connect to the next address; retries with growing delays until it succeeds."""
        loop = asyncio.get_running_loop()
        while not self._crowd.closed:
            host, port = self._crowd.next_address()
            try:
                async with self._crowd.dialling, asyncio.timeout(10.0):
                    await loop.create_connection(lambda: self, host, port)
                    return
            except (OSError, TimeoutError):
                await self._wait()

    async def _wait(self) -> None:
        await asyncio.sleep(random.uniform(0.0, self._delay))
        self._delay = min(2 * self._delay, BACKOFF[1])

    def abandon(self) -> None:
        """Connect again, while the present connection stays open unread for 5 s: what is in flight on it is lost."""
        transport = self._transport
        if transport is not None:
            transport.pause_reading()
            transport.set_protocol(asyncio.Protocol())
            asyncio.get_running_loop().call_later(5.0, transport.abort)
            self.connection_lost(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._data.clear()
        self._write(device.Login(n=0, number=self.number, token=self._token))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self.is_attached:
            self.is_attached = False
            self._crowd.count(-1)
        if not self._crowd.closed:
            self._crowd.start(self._reconnect())

    async def _reconnect(self) -> None:
        await self._wait()
        await self.dial()

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4:
            size = int.from_bytes(self._data[:4], "big")
            if len(self._data) < 4 + size:
                return
            frame = _decode(self._data[4 : 4 + size])
            del self._data[: 4 + size]
            self._take(frame)

    def _take(self, frame: Any) -> None:
        if isinstance(frame, device.Deliver):
            self.received[frame.id] += 1
            self._write(device.Ack(n=[frame.n]))
            self._crowd.on_delivery(self, frame)
        elif isinstance(frame, device.Accepted):
            for n in frame.n:
                sent = self._pending.pop(n, None)
                if sent is not None:
                    self.accepted[sent.id] = asyncio.get_running_loop().time()
        elif isinstance(frame, device.Refused):
            sent = self._pending.get(frame.n)
            if sent is not None and frame.reason == device.OVERLOADED:
                asyncio.get_running_loop().call_later(1.0, self._write, sent)
            elif sent is not None:
                del self._pending[frame.n]
                self.refused[sent.id] = frame.reason
        elif isinstance(frame, device.Ok):
            self.is_attached = True
            self._delay = BACKOFF[0]
            self._crowd.count(1)
            for sent in list(self._pending.values()):
                self._write(sent)
        elif isinstance(frame, device.Closing | device.Failed):
            self.closings.append(frame.reason)
            self.close()

    def _write(self, frame: msgspec.Struct) -> None:
        if self._transport is not None:
            data = _encode(frame)
            self._transport.write(len(data).to_bytes(4, "big") + data)


class LightDevices:
    """Devices that connect to the same addresses, round robin."""

    def __init__(self, addresses: Sequence[Address], tokens: Mapping[str, str]) -> None:
        self.addresses = list(addresses)
        self.devices = {number: LightDevice(self, number, token) for number, token in tokens.items()}
        self.dialling = asyncio.Semaphore(DIALS)
        self.closed = False
        self.attached = 0
        self.on_delivery: Callable[[LightDevice, device.Deliver], object] = lambda *_: None
        self._turns = itertools.count()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def next_address(self) -> Address:
        return self.addresses[next(self._turns) % len(self.addresses)]

    def count(self, by: int) -> None:
        self.attached += by
        self.changed()

    def changed(self) -> None:
        """Wake up `until`, so that it checks its condition."""
        self._changed.set()

    def start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def connect(self, seconds: float = 120.0) -> None:
        """Connect all devices and wait until they are attached."""
        for each in self.devices.values():
            self.start(each.dial())
        await self.until(lambda: self.attached == len(self.devices), seconds)

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until a condition holds; checks it after each change and every 0.2 s. Raises `TimeoutError`."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await self._changed.wait()

    async def close(self) -> None:
        self.closed = True
        for each in self.devices.values():
            each.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
