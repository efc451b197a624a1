"""Session of one connection: what the frames of its devices do, whatever carries them."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from prometheus_client import Counter

from network.connections import guest, sends
from network.connections.guest import Guest
from network.connections.pace import Pace
from network.connections.places import Place, Places
from network.connections.transport import Transport
from network.delay import Delay
from network.directory import bundles, lookups
from network.directory.allowances import DeviceAllowances
from network.directory.logins import Logins, Proven
from network.directory.refills import Refills
from network.groups.copies import Copies
from network.groups.kept_messages import KeptMessages
from network.routing.delivery_queue import DeliveryQueue
from network.routing.router import Router
from network.settings import Limits
from tidings.runtime.batcher import BatcherClosed, BatcherFull
from tidings.storage.network.prekeys import Counts
from tidings.wire import addresses, device
from tidings.wire.connection import FULL, MAX_FRAME, PACED

log = logging.getLogger(__name__)

FAILED = Counter("tidings_network_requests_failed_total", "Logins, checks and fetches not done", ["reason"])

# Sends that may be put off at a time when a distant network is played; one more is refused as `overloaded`.
MAX_DELAYED = 200_000
# Bytes unread by a peer at which nothing more is read from it.
UNREAD = 1024 * 1024
# Acknowledgements of nothing that cost as much as a ping.
STRAYS = 100


@dataclasses.dataclass(frozen=True, slots=True)
class LoggedIn:
    """A device on a connection. part: of it, that is here; identity_key: that it was registered with at its login."""

    part: device.Partition
    identity_key: bytes


class Presence(Protocol):
    """Which node each device is attached to."""

    async def claim(self, number: str, epoch: int, part: device.Partition) -> bool:
        """This part of a device attaches here: no other node has it from now on. False when it may not."""
        ...

    def detached(self, number: str, part: device.Partition) -> None:
        """It has not attached after all, or not any more, unless it is by the end of this turn of the loop."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Backend:
    """Parts of the process that all sessions share. presence: `None` when there are no other nodes."""

    router: Router
    copies: Copies
    kept: KeptMessages
    logins: Logins
    lookups: lookups.Lookups
    bundles: bundles.PreKeyBundles
    refills: Refills
    places: Places
    allowances: DeviceAllowances
    delay: Delay
    limits: Limits
    presence: Presence | None = None


class Session:
    """One connection with any number of devices on it. Every method is called on the event loop and returns at once.

    Of this connection at most `Limits.requests` logins, checks and fetches are in flight; one more fails. With
    `Limits.sends` of its sends unanswered nothing more is read. What does nothing has its `Pace`. While nobody is
    logged in it is a guest's.

    is_new:  nobody has ever logged in on it.
    devices: those on it, by number. To register one again detaches it.
    """

    # There may be a hundred thousand of them, most of them idle.
    __slots__ = (
        "_accepted",
        "_backend",
        "_delay",
        "_delayed",
        "_guest",
        "_is_full",
        "_is_paced",
        "_last_delivery",
        "_loop",
        "_opened_at",
        "_pace",
        "_router",
        "_sent",
        "_tasks",
        "_transport",
        "_unanswered",
        "deliveries",
        "devices",
        "in_flight_bytes",
        "is_new",
        "waiting",
    )

    def __init__(self, transport: Transport, backend: Backend, place: Place) -> None:
        self._transport = transport
        transport.limit(frame=guest.FRAME, unread=guest.UNREAD)
        self._guest: Guest | None = Guest(transport, place, self._only_login, evict=self._evicted)
        self.is_new = True
        # Made with the first frame that has its pace.
        self._pace: Pace | None = None
        self._is_paced = self._is_full = False
        self._unanswered = 0
        self._backend = backend
        self._router = backend.router
        self._delay = backend.delay
        self._delayed = backend.delay.active
        self._loop = asyncio.get_running_loop()
        # Requests in flight; `None` when there are none.
        self._tasks: set[asyncio.Task[None]] | None = None
        # What is to be said in one frame; `None` when there is nothing.
        self._accepted: list[int] | None = None
        self._last_delivery = 0
        self._opened_at = self._loop.time()
        self._sent = 0
        self.devices: dict[str, LoggedIn] = {}
        self.deliveries: dict[int, DeliveryQueue] = {}
        self.in_flight_bytes = 0
        self.waiting: dict[DeliveryQueue, None] = {}

    @property
    def transport(self) -> Transport:
        """The carrier of its frames."""
        return self._transport

    # Frames from the device.

    def received(self, frame: device.FromDevice) -> None:
        """One frame."""
        if self._guest is not None:
            self._guest.received(frame)
        elif isinstance(frame, device.Send):
            self._sent += 1
            self._send(frame)
        elif isinstance(frame, device.Ack):
            strays = self._router.acked(self, frame.n)
            if strays:
                self._charge(strays / STRAYS)
        elif isinstance(frame, device.Ping):
            self._charge()
            self._transport.send(device.Pong())
        else:
            self._request(frame)

    def _charge(self, cost: float = 1.0) -> None:
        """Something was done for nothing: read on when the tokens for it are there."""
        if self._pace is None:
            self._pace = Pace()
        wait = self._pace.take(self._loop.time(), cost)
        if wait > 0 and not self._is_paced:
            self._is_paced = True
            self._transport.pause(PACED)
            self._loop.call_later(wait, self._paced)

    def _paced(self) -> None:
        self._is_paced = False
        self._transport.resume(PACED)

    # While nobody is logged in.

    @property
    def is_waiting_for_login(self) -> bool:
        """Is nothing under way that would make it a device's?"""
        return self._guest is not None and not self._guest.is_busy

    def _only_login(self, frame: device.Login, answered: Callable[[], None]) -> None:
        async def log_in() -> None:
            try:
                await self._login(frame)
            finally:
                answered()

        self._start(frame.n, log_in())

    def _left(self) -> None:
        """Its last device is gone: it has a place among the strangers again, or none any more."""
        place = self._backend.places.enter_again(self._transport.host)
        if place is None:
            self._evicted()
        else:
            self._guest = Guest(self._transport, place, self._only_login, evict=self._evicted)

    def _evicted(self) -> None:
        if self._transport.is_open:
            self.close(device.OVERLOADED, "others who have not logged in need the place")

    def _send(self, frame: device.Send) -> None:
        self._unanswered += 1
        if self._unanswered >= self._backend.limits.sends and not self._is_full:
            self._is_full = True
            self._transport.pause(FULL)
        sender = self.devices.get(frame.sender)
        reason, detail = sends.judge(frame, sender.identity_key if sender is not None else None)
        if reason:
            self._charge()
            self.refused(frame.n, reason, detail)
            return
        # More than the network allows is as much as it allows, and a number that every node can read.
        frame.ttl = min(frame.ttl, sends.MAX_NUMBER)
        if not self._delayed:
            self._take(frame)
        elif self._delay.waiting >= MAX_DELAYED:
            self.refused(frame.n, device.OVERLOADED)
        else:
            self._delay.call((frame.sender, frame.to), functools.partial(self._send_now, frame))

    def _send_now(self, frame: device.Send) -> None:
        if frame.sender in self.devices:
            self._take(frame)
        else:
            self.refused(frame.n, device.INVALID, "`from` has left this connection")

    def _take(self, frame: device.Send) -> None:
        if frame.kind == device.GROUP:
            self._backend.copies.send(self, frame)
        else:
            self._router.send(self, frame)

    def _request(self, frame: device.Login | device.Logout | device.Check | device.Fetch) -> None:
        if self._tasks is not None and len(self._tasks) >= self._backend.limits.requests:
            self._fault(frame.n, device.OVERLOADED, "too many requests of this connection are in flight")
        elif isinstance(frame, device.Login):
            self._start(frame.n, self._login(frame))
        elif isinstance(frame, device.Logout):
            self._start(frame.n, self._logout(frame))
        elif frame.number not in self.devices:
            self._fault(frame.n, device.UNAUTHORIZED, f"{frame.number!r} is not logged in on this connection")
        elif isinstance(frame, device.Fetch):
            if len(frame.numbers) > bundles.MAX_NUMBERS:
                self._fault(frame.n, device.TOO_LARGE, f"at most {bundles.MAX_NUMBERS} numbers in a fetch")
            elif self._may(frame, "fetch"):
                self._start(frame.n, self._fetch(frame))
        elif len(frame.numbers) > lookups.MAX_NUMBERS:
            self._fault(frame.n, device.TOO_LARGE, f"at most {lookups.MAX_NUMBERS} numbers in a check")
        else:
            asker = frame.number, self.devices[frame.number].part.partition
            try:
                self._backend.lookups.begin(asker)
            except lookups.Busy:
                self._fault(frame.n, device.BUSY, "a check of this number is in flight")
                return
            if self._may(frame, "check"):
                self._start(frame.n, self._check(frame, asker))
            else:
                self._backend.lookups.end(asker)

    def _may(self, frame: device.Check | device.Fetch, call: str) -> bool:
        wait = self._backend.allowances.take(call, frame.number, len(frame.numbers))
        if wait:
            self._failed(frame.n, device.RATE_LIMITED, "too many numbers", math.ceil(wait))
        return not wait

    async def _login(self, frame: device.Login) -> None:
        await self._delay.sleep()
        part = device.Partition(frame.partition, frame.partitions, frame.layout)
        if part == device.WHOLE:
            part = device.WHOLE
        proven = await self._prove(frame, part)
        if proven is not None and self._backend.presence is not None:
            proven = await self._claim(self._backend.presence, frame, part, proven)
        if proven is None:
            return
        if frame.number in self.devices:
            self._charge()
        if self._guest is not None:
            self._guest.proved()
            self._guest = None
            self.is_new = False
            self._transport.limit(frame=MAX_FRAME, unread=UNREAD)
        self._transport.send(device.Ok(n=frame.n))
        self._router.attach(frame.number, self, frame.epoch, part)
        self.devices[frame.number] = LoggedIn(part, proven.identity_key)
        if part.partition == 0:
            self._backend.refills.attached(frame.number, proven.left, self)

    async def _prove(self, frame: device.Login, part: device.Partition) -> Proven | None:
        """What is known of the device; `None` when it may not attach, which it was told."""
        proven = None
        if addresses.is_number(frame.number):
            proven = await self._backend.logins.verify(frame.number, frame.token)
        if not self._transport.is_open:
            return None
        if proven is None:
            self._fault(frame.n, device.UNAUTHORIZED, "no such number, or not its token")
            return None
        return None if self._is_refused(frame, part) else proven

    def _is_refused(self, frame: device.Login, part: device.Partition) -> bool:
        here = self.devices.get(frame.number)
        if not part.is_valid:
            self._fault(frame.n, device.INVALID, "there is no such partition: 1, 2, 4, 8, 16 or 32 of them, from 0")
        elif here is not None and not here.part.is_same_part(part):
            self._fault(frame.n, device.INVALID, "another partition of the device is on this connection: log it out")
        elif self._router.is_stale_login(frame.number, frame.epoch, part):
            self._fault(frame.n, device.STALE_EPOCH, "the device is logged in under a higher epoch or layout")
        else:
            return False
        return True

    async def _claim(
        self, presence: Presence, frame: device.Login, part: device.Partition, proven: Proven | None
    ) -> Proven | None:
        """What is known of the device, now that the other nodes let it attach; `None` when it may not."""
        logins, is_claimed = self._backend.logins, False
        try:
            while proven is not None:
                changes = logins.changes
                if not await presence.claim(frame.number, frame.epoch, part):
                    self._fault(frame.n, device.STALE_EPOCH, "the device is logged in under a higher epoch or layout")
                    return None
                # Others may have logged in here meanwhile.
                if not self._transport.is_open or self._is_refused(frame, part):
                    return None
                if changes == logins.changes:
                    is_claimed = True
                    return proven
                # Somebody has registered meanwhile, perhaps this number.
                proven = await self._prove(frame, part)
            return None
        finally:
            if not is_claimed:
                presence.detached(frame.number, part)

    async def _logout(self, frame: device.Logout) -> None:
        await self._delay.sleep()
        self._router.detach(frame.number, self)
        self._transport.send(device.Ok(n=frame.n))

    async def _check(self, frame: device.Check, asker: lookups.Asker) -> None:
        try:
            await self._delay.sleep()
            registered = await self._backend.lookups.check(frame.number, frame.numbers)
        finally:
            self._backend.lookups.end(asker)
        self._transport.send(device.Checked(n=frame.n, registered=registered))

    async def _fetch(self, frame: device.Fetch) -> None:
        await self._delay.sleep()
        found = await self._backend.bundles.fetch(frame.number, frame.numbers)
        self._transport.send(device.Bundles(n=frame.n, bundles=found))

    def _start(self, n: int, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(self._guard(n, work))
        if self._tasks is None:
            self._tasks = set()
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._tasks is not None:
            self._tasks.discard(task)
            if not self._tasks:
                self._tasks = None

    async def _guard(self, n: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (BatcherFull, BatcherClosed):
            self._failed(n, device.OVERLOADED, "too much is waiting for the database")
        except Exception:
            log.exception("request.failed", extra={"peer": self._transport.peer, "n": n})
            self._failed(n, device.OVERLOADED, "it could not be done now")

    def _fault(self, n: int, reason: str, detail: str) -> None:
        """It failed, and the device could have known."""
        self._charge()
        self._failed(n, reason, detail)

    def _failed(self, n: int, reason: str, detail: str, retry_after: int = 0) -> None:
        FAILED.labels(reason).inc()
        self._transport.send(device.Failed(n=n, reason=reason, detail=detail, retry_after=retry_after))

    # What the router has for the device.

    def deliver(self, frame: device.Deliver, queue: DeliveryQueue) -> int:
        """Send one envelope under the next number of this connection."""
        self._last_delivery = n = self._last_delivery + 1
        self.deliveries[n] = queue
        frame.n = n
        self._transport.send(frame)
        return n

    def accepted(self, n: int) -> None:
        """Say so; everything accepted in one turn of the loop goes into one frame."""
        if self._accepted is None:
            self._accepted = []
            self._loop.call_soon(self._flush_accepted)
        self._accepted.append(n)
        self._answered()

    def _answered(self) -> None:
        self._unanswered -= 1
        if self._is_full and 2 * self._unanswered < self._backend.limits.sends:
            self._is_full = False
            self._transport.resume(FULL)

    def _flush_accepted(self) -> None:
        if self._accepted is None:
            return
        accepted, self._accepted = self._accepted, None
        self._transport.send(device.Accepted(n=accepted))

    def refused(self, n: int, reason: str, detail: str = "", retry_after: int = 0) -> None:
        """Say so."""
        self._transport.send(device.Refused(n=n, reason=reason, detail=detail, retry_after=retry_after))
        self._answered()

    def superseded(self, n: int) -> None:
        """That number is not answered any more."""
        self._answered()

    def detached(self, number: str, reason: str) -> None:
        """A device is no longer on this connection; a reason, if there is one, is sent to it."""
        self.devices.pop(number, None)
        self._backend.refills.detached(number, self)
        if reason:
            self._transport.send(device.Closing(reason=reason, number=number))
        if not self.devices and self._guest is None and self._transport.is_open:
            self._left()

    def prekeys_low(self, number: str, left: Counts) -> None:
        """Ask a device for more one-time pre-keys."""
        self._transport.send(
            device.PreKeysLow(number=number, remaining=left.prekeys, kyber_remaining=left.kyber_prekeys)
        )

    # The end.

    def close(self, reason: str, detail: str = "") -> None:
        """Say why, and close."""
        self._flush_accepted()
        self._transport.send(device.Closing(reason=reason, detail=detail))
        self._transport.close(reason)

    def closed(self, reason: str) -> None:
        """The connection is gone: what was in flight is put into the mailboxes."""
        for task in self._tasks or ():
            task.cancel()
        devices = len(self.devices)
        # Nobody gets a turn on it any more.
        self.waiting.clear()
        for number in list(self.devices):
            self._router.detach(number, self)
        if self._guest is not None:
            self._guest.left()
        # One line for each stranger would let strangers fill the log.
        log.log(
            logging.DEBUG if self.is_new else logging.INFO,
            "connection.closed",
            extra={
                "peer": self._transport.peer,
                "reason": reason,
                "devices": devices,
                "sent": self._sent,
                "delivered": self._last_delivery,
                "seconds": round(self._loop.time() - self._opened_at, 1),
            },
        )
