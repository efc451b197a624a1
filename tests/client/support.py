"""Client of the device API that records its events, and a scripted network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from tidings.client.connection import DeviceConnection
from tidings.client.listener import DeviceListener
from tidings.client.transports import Dial, tcp
from tidings.wire import connection as wire
from tidings.wire import device

TIMEOUT = 30.0


async def pieces(content: bytes, size: int = 64 * 1024) -> AsyncIterator[bytes]:
    """Yield the content of a blob in chunks, as it is uploaded."""
    for start in range(0, len(content), size):
        yield content[start : start + size]


class Recorder(DeviceListener[str]):
    """One connection and its events, in order."""

    def __init__(self, dial: Dial, **options: Any) -> None:
        self.connection: DeviceConnection[str] = DeviceConnection(
            dial, **{"backoff": (0.01, 0.05), "login_again": 0.01, **options}
        )
        self.events: list[tuple[Any, ...]] = []
        self.deliveries: list[device.Deliver] = []
        self.task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self, *, ready: bool = True) -> AsyncIterator[Recorder]:
        stop = asyncio.Event()
        self.task = asyncio.create_task(self.connection.run(self, stop))
        try:
            if ready:
                async with asyncio.timeout(TIMEOUT):
                    await self.connection.ready.wait()
            yield self
        finally:
            stop.set()
            async with asyncio.timeout(TIMEOUT):
                await asyncio.wait([self.task])

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_event(self, *event: Any) -> None:
        await self.until(lambda: event in self.events)

    def count(self, kind: str) -> int:
        return sum(event[0] == kind for event in self.events)

    def send(self, sender: str, to: str, id: str, **more: Any) -> None:
        more = {"kind": device.MESSAGE, "body": b"sealed", **more}
        self.connection.send(device.Send(0, sender, to, id, **more), id)

    def _record(self, *event: Any) -> None:
        self.events.append(event)
        self._changed.set()

    def attached(self, number: str) -> None:
        self._record("attached", number)

    def detached(self, number: str, reason: str, detail: str) -> None:
        self._record("detached", number, reason)

    def logged_out(self, number: str) -> None:
        self._record("logged out", number)

    def ready(self) -> None:
        self._record("ready")

    def lost(self, reason: str) -> None:
        self._record("lost", reason)

    def delivered(self, delivery: device.Deliver) -> None:
        self.deliveries.append(delivery)
        self._record("delivered", delivery.to, delivery.id)

    def accepted(self, sent: Sequence[str]) -> None:
        for each in sent:
            self._record("accepted", each)

    def refused(self, sent: str, reason: str, detail: str) -> None:
        self._record("refused", sent, reason)

    def held_back(self, sent: str) -> None:
        self._record("held back", sent)

    def prekeys_low(self, notice: device.PreKeysLow) -> None:
        self._record("prekeys_low", notice.number, notice.remaining)


class ScriptedNetwork:
    """Network that records each frame, and responds with what `respond` returns; None for no response."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.connections: list[wire.Connection] = []
        self.respond: Callable[[Any], Any] = lambda frame: None
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def start(self) -> Dial:
        self._server = await wire.listen("127.0.0.1", 0, device.FromDevice, lambda: self)
        return tcp(*self._server.sockets[0].getsockname())

    def stop(self) -> None:
        for connection in self.connections:
            connection.abort("test over")
        if self._server is not None:
            self._server.close()

    def sent(self, kind: type) -> list[Any]:
        return [frame for frame in self.frames if type(frame) is kind]

    async def until_sent(self, kind: type, count: int) -> list[Any]:
        async with asyncio.timeout(TIMEOUT):
            while len(self.sent(kind)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.sent(kind)

    def send_frame(self, frame: Any) -> None:
        self.connections[-1].send(frame)

    def opened(self, connection: wire.Connection) -> None:
        self.connections.append(connection)

    def received(self, connection: wire.Connection, frame: Any) -> None:
        self.frames.append(frame)
        response = self.respond(frame)
        if response is not None:
            connection.send(response)
        self._changed.set()

    def closed(self, connection: wire.Connection, reason: str) -> None:
        self._changed.set()
