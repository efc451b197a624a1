"""One live connection to the network and the devices on it: logs them in, keeps it up, numbers what goes over it."""

from __future__ import annotations

import asyncio
import collections
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from prometheus_client import Counter, Gauge

from handset import errors
from handset.devices.device import Device
from tidings.runtime.clock import Clock
from tidings.runtime.service import wait_for
from tidings.storage.handset import mailroom as storage
from tidings.wire import device as wire
from tidings.wire.connection import Handler

log = logging.getLogger(__name__)

LOGGED_IN = Gauge("tidings_handset_devices_online", "Devices that are logged in")
CONNECTS = Counter("tidings_handset_connections_total", "Attempts to connect to the network", ["outcome"])
SENT = Counter("tidings_handset_envelopes_total", "Envelopes the network has answered", ["outcome"])

ACCEPTED = SENT.labels("accepted")

LOGINS_IN_FLIGHT = 256
SENDS_IN_FLIGHT = 4000  # what is beyond waits in the outbox, which is bounded by the mailroom
PING_SECONDS = 20.0
SILENT_SECONDS = 60.0
DIAL_SECONDS = 10.0
FETCH_SECONDS = 15.0
WAIT_SECONDS = 5.0  # for a connection, before a fetch is given up
RETRY_LOGIN_SECONDS = 1.0
MAX_BACKOFF = 5.0


class Peer(Protocol):
    """The connection under a link: TCP or WebSocket."""

    is_open: bool
    last_received: float

    def send(self, frame: Any) -> None: ...
    def close(self, reason: str) -> None: ...
    def abort(self, reason: str) -> None: ...


Dial = Callable[[Handler], Awaitable[Peer]]


class Owner(Protocol):
    """Whoever the link works for. All are called on the event loop and must not block."""

    def arrived(self, peer: Peer, device: Device, frame: wire.Deliver) -> None:
        """Acknowledge it on `peer` once it is on disk."""
        ...

    def accepted(self, positions: Sequence[int]) -> None:
        """The network has these envelopes; they are out of their devices' outboxes."""
        ...

    def refused(self, device: Device, envelope: storage.Envelope, reason: str, detail: str) -> None:
        """The network does not take this envelope; with `overloaded` it stays in the outbox, else it is out of it."""
        ...

    def prekeys_low(self, device: Device, frame: wire.PreKeysLow) -> None: ...

    def unauthorized(self, device: Device, detail: str) -> None:
        """Its token is void; it stays off until `log_in`."""
        ...

    def replaced(self, device: Device) -> None:
        """It has logged in on another connection; it stays off until the next connection or `log_in`."""
        ...

    def lost(self, link: Link, reason: str) -> None:
        """There is no connection; the link goes on trying."""
        ...

    def logged_in(self, link: Link) -> None:
        """Every device of this link has been answered."""
        ...


class Link:
    """Connects, logs in, sends, and does so again with growing delays when the connection is lost."""

    def __init__(self, name: str, dial: Dial, devices: Sequence[Device], owner: Owner, clock: Clock) -> None:
        self.name = name
        self._dial = dial
        self._devices = {device.number: device for device in devices}
        self._owner = owner
        self._clock = clock
        self._peer: Any = None
        self._closed = asyncio.Event()
        self._answered_all = asyncio.Event()
        self._stopping = False
        self._number = 0
        self._to_log_in: collections.deque[Device] = collections.deque()
        self._logins: dict[int, Device] = {}
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._in_flight: dict[int, tuple[Device, storage.Envelope]] = {}
        self._waiting: collections.deque[tuple[Device, storage.Envelope]] = collections.deque()

    @property
    def is_open(self) -> bool:
        return self._peer is not None and bool(self._peer.is_open)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the connection up until `stop`."""
        delay, lost = 0.1, False
        while not stop.is_set():
            self._closed.clear()
            try:
                async with asyncio.timeout(DIAL_SECONDS):
                    await self._dial(self)
            except (OSError, TimeoutError) as error:
                CONNECTS.labels("failed").inc()
                if not lost:
                    log.warning("network.away", extra={"link": self.name, "error": str(error) or repr(error)})
                    self._owner.lost(self, "cannot be reached")
                lost = True
            else:
                CONNECTS.labels("ok").inc()
                log.info("network.connected", extra={"link": self.name, "devices": len(self._devices)})
                connected_at = self._clock.monotonic()
                await self._stay(stop)
                lost = False
                if self._clock.monotonic() - connected_at > 1.0:
                    delay = 0.1
            await wait_for(stop, delay * random.uniform(0.5, 1.0))  # noqa: S311
            delay = min(delay * 2, MAX_BACKOFF)

    async def _stay(self, stop: asyncio.Event) -> None:
        """Returns when the connection is gone, or closed because of `stop`."""
        peer: Peer | None = self._peer
        stopping = asyncio.ensure_future(stop.wait())
        closing = asyncio.ensure_future(self._closed.wait())
        loop = asyncio.get_running_loop()
        try:
            while peer is not None and not closing.done():
                await asyncio.wait((stopping, closing), timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if stopping.done():
                    self._stopping = True
                    peer.close("shutdown")
                    await asyncio.wait((closing,), timeout=1.0)
                    if not closing.done():
                        peer.abort("shutdown")
                    return
                if loop.time() - peer.last_received > SILENT_SECONDS:
                    peer.abort("the network is silent")
                elif peer.is_open:
                    peer.send(wire.Ping())
        finally:
            stopping.cancel()
            closing.cancel()

    def abort(self, reason: str) -> None:
        """Drop the connection; `run` makes a new one, on which everything unacknowledged comes again."""
        if self._peer is not None:
            self._peer.abort(reason)

    def offer(self, device: Device, envelope: storage.Envelope) -> None:
        if len(self._in_flight) < SENDS_IN_FLIGHT and not self._waiting:
            self._send(device, envelope)
        else:
            self._waiting.append((device, envelope))

    def log_in(self, device: Device) -> None:
        """Log a device in, again or for the first time."""
        self._devices[device.number] = device
        if self.is_open:
            self._to_log_in.append(device)
            self._send_logins()

    async def fetch(self, device: Device, peers: list[str]) -> list[wire.Bundle]:
        """Pre-key bundles of these numbers; those that are not registered are left out. Raises `NetworkAway`."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._answered_all.wait()
        except TimeoutError as error:
            raise errors.NetworkAway("not connected to the network") from error
        self._number += 1
        number = self._number
        future: asyncio.Future[list[wire.Bundle]] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            self._peer.send(wire.Fetch(number, device.number, peers))
            async with asyncio.timeout(FETCH_SECONDS):
                return await future
        except TimeoutError as error:
            raise errors.NetworkAway("the network did not answer") from error
        finally:
            self._asked.pop(number, None)

    # Called by the connection.

    def opened(self, connection: Any) -> None:
        self._peer = connection
        self._number = 0
        self._to_log_in.extend(device for device in self._devices.values() if device.token is not None)
        self._send_logins()

    def closed(self, connection: Any, reason: str) -> None:
        log.info("network.disconnected", extra={"link": self.name, "reason": reason})
        self._peer = None
        self._answered_all.clear()
        for device in self._devices.values():
            if device.channel is self:
                device.channel = None
                LOGGED_IN.dec()
        self._to_log_in.clear()
        self._logins.clear()
        self._in_flight.clear()
        self._waiting.clear()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(errors.NetworkAway("the connection was lost"))
        self._closed.set()
        if not self._stopping:
            self._owner.lost(self, reason)

    def received(self, connection: Any, frame: Any) -> None:
        kind = type(frame)
        if kind is wire.Deliver:
            device = self._devices.get(frame.to)
            if device is not None:
                self._owner.arrived(connection, device, frame)
        elif kind is wire.Accepted:
            self._accepted(frame.n)
        elif kind is wire.Refused:
            self._refused(frame)
        elif kind is wire.Ok or kind is wire.Failed:
            self._answered(frame)
        elif kind is wire.Bundles:
            future = self._asked.get(frame.n)
            if future is not None and not future.done():
                future.set_result(frame.bundles)
        elif kind is wire.PreKeysLow:
            device = self._devices.get(frame.number)
            if device is not None:
                self._owner.prekeys_low(device, frame)
        elif kind is wire.Closing:
            self._closing(frame)

    def _send(self, device: Device, envelope: storage.Envelope) -> None:
        self._number += 1
        self._in_flight[self._number] = (device, envelope)
        to_group = envelope.kind == wire.GROUP
        self._peer.send(
            wire.Send(
                self._number,
                envelope.number,
                envelope.group if to_group else envelope.peer,
                envelope.id,
                envelope.kind,
                envelope.body,
                list(envelope.refs),
                group="" if to_group else envelope.group,
                epoch=envelope.epoch,
            )
        )

    def _send_waiting(self) -> None:
        while self._waiting and len(self._in_flight) < SENDS_IN_FLIGHT:
            device, envelope = self._waiting.popleft()
            if device.channel is self:
                self._send(device, envelope)

    def _accepted(self, numbers: list[int]) -> None:
        positions = []
        for number in numbers:
            entry = self._in_flight.pop(number, None)
            if entry is not None:
                device, envelope = entry
                device.outbox.pop(envelope.position, None)
                positions.append(envelope.position)
        ACCEPTED.inc(len(positions))
        self._owner.accepted(positions)
        self._send_waiting()

    def _refused(self, frame: wire.Refused) -> None:
        entry = self._in_flight.pop(frame.n, None)
        if entry is not None:
            device, envelope = entry
            SENT.labels(frame.reason).inc()
            if frame.reason != wire.OVERLOADED:
                device.outbox.pop(envelope.position, None)
            self._owner.refused(device, envelope, frame.reason, frame.detail)
        self._send_waiting()

    def _send_logins(self) -> None:
        while self._to_log_in and len(self._logins) < LOGINS_IN_FLIGHT:
            device = self._to_log_in.popleft()
            if device.token is None:
                continue
            self._number += 1
            self._logins[self._number] = device
            self._peer.send(wire.Login(self._number, device.number, device.token))
        if not self._to_log_in and not self._logins:
            self._answered_all.set()
            self._owner.logged_in(self)

    def _answered(self, frame: wire.Ok | wire.Failed) -> None:
        device = self._logins.pop(frame.n, None)
        if device is None:
            future = self._asked.get(frame.n)
            if future is not None and not future.done() and isinstance(frame, wire.Failed):
                future.set_exception(errors.NetworkAway(frame.detail or frame.reason))
            return
        if isinstance(frame, wire.Ok):
            self._attach(device)
        elif frame.reason == wire.UNAUTHORIZED:
            log.warning("login.refused", extra={"number": device.number, "detail": frame.detail})
            self._owner.unauthorized(device, frame.detail)
        else:
            asyncio.get_running_loop().call_later(RETRY_LOGIN_SECONDS, self.log_in, device)
        self._send_logins()

    def _attach(self, device: Device) -> None:
        if device.channel is None:
            LOGGED_IN.inc()
        device.channel = self
        now = int(self._clock.now() * 1000)
        for envelope in device.outbox.values():
            if envelope.due_at <= now:
                self.offer(device, envelope)

    def _closing(self, frame: wire.Closing) -> None:
        if not frame.number:
            log.info("network.closing", extra={"link": self.name, "reason": frame.reason, "detail": frame.detail})
            return
        device = self._devices.get(frame.number)
        if device is not None and device.channel is self:
            device.channel = None
            LOGGED_IN.dec()
            log.warning("device.detached", extra={"number": device.number, "reason": frame.reason})
            if frame.reason == wire.UNAUTHORIZED:
                self._owner.unauthorized(device, frame.detail)
            elif frame.reason == wire.REPLACED:
                self._owner.replaced(device)
            else:
                asyncio.get_running_loop().call_later(RETRY_LOGIN_SECONDS, self.log_in, device)
