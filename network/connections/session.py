"""Session of one connection: what the frames of its devices do, whatever carries them."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

import msgspec
from prometheus_client import Counter

from network.delay import Delay
from network.directory import bundles, lookups
from network.directory.logins import Logins
from network.directory.refills import Refills
from network.groups.copies import Copies
from network.routing.delivery_queue import DeliveryQueue
from network.routing.router import Router
from network.settings import Limits
from tidings.e2ee import messages
from tidings.runtime.batcher import BatcherClosed, BatcherFull
from tidings.storage.network.prekeys import Counts
from tidings.wire import addresses, device

log = logging.getLogger(__name__)

FAILED = Counter("tidings_network_requests_failed_total", "Logins, checks and fetches not done", ["reason"])

MAX_BODY = 128 * 1024
MAX_ID = 64
MAX_REFS = 1000
# Sends that may be put off at a time when a distant network is played; one more is refused as `overloaded`.
MAX_DELAYED = 200_000
_KINDS = frozenset((device.PREKEY, device.MESSAGE, device.DELIVERED, device.READ, device.RETRY, device.GROUP))


class Transport(Protocol):
    """Carrier of one connection's frames. Sending never waits; a reader that is too slow is disconnected."""

    @property
    def peer(self) -> str: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def last_received(self) -> float:
        """Loop time of the last data from the peer."""
        ...

    def send(self, frame: msgspec.Struct) -> None:
        """Queue one frame; dropped when the connection is closed."""
        ...

    def close(self, reason: str) -> None:
        """Send what is queued, then close."""
        ...

    def abort(self, reason: str) -> None:
        """Close at once."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Backend:
    """Parts of the process that all sessions share."""

    router: Router
    copies: Copies
    logins: Logins
    lookups: lookups.Lookups
    bundles: bundles.PreKeyBundles
    refills: Refills
    delay: Delay
    limits: Limits


class Session:
    """One connection with any number of devices on it. Every method is called on the event loop and returns at once.

    Of this connection at most `Limits.requests` logins, checks and fetches are in flight; one more fails.
    """

    def __init__(self, transport: Transport, backend: Backend) -> None:
        self._transport = transport
        self._backend = backend
        self._router = backend.router
        self._delay = backend.delay
        self._delayed = backend.delay.active
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepted: list[int] = []
        self._last_delivery = 0
        self._opened_at = self._loop.time()
        self._sent = 0
        self.numbers: set[str] = set()
        # Of each of them, what it was registered with when it logged in; to register again detaches it.
        self._identities: dict[str, bytes] = {}
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
        if isinstance(frame, device.Send):
            self._sent += 1
            self._send(frame)
        elif isinstance(frame, device.Ack):
            self._router.acked(self, frame.n)
        elif isinstance(frame, device.Ping):
            self._transport.send(device.Pong())
        else:
            self._request(frame)

    def _send(self, frame: device.Send) -> None:
        reason, detail = self._judge(frame)
        if reason:
            self.refused(frame.n, reason, detail)
        elif not self._delayed:
            self._take(frame)
        elif self._delay.waiting >= MAX_DELAYED:
            self.refused(frame.n, device.OVERLOADED)
        else:
            self._delay.call((frame.sender, frame.to), functools.partial(self._send_now, frame))

    def _send_now(self, frame: device.Send) -> None:
        if frame.sender in self.numbers:
            self._take(frame)
        else:
            self.refused(frame.n, device.INVALID, "`from` has left this connection")

    def _take(self, frame: device.Send) -> None:
        if frame.kind == device.GROUP:
            self._backend.copies.send(self, frame)
        else:
            self._router.send(self, frame)

    def _judge(self, frame: device.Send) -> tuple[str, str]:
        if frame.sender not in self.numbers:
            return device.INVALID, "`from` is not logged in on this connection"
        if len(frame.body) > MAX_BODY:
            return device.TOO_LARGE, f"`body` has {len(frame.body)} bytes, at most {MAX_BODY} are taken"
        # With a blank at its end an id is the same as one without it to some databases.
        if not 0 < len(frame.id) <= MAX_ID or " " in frame.id or not (frame.id.isascii() and frame.id.isprintable()):
            return device.INVALID, f"`id` is not 1 to {MAX_ID} printable ASCII characters without blanks"
        if frame.kind not in _KINDS:
            return device.INVALID, f"`kind` is none of {', '.join(sorted(_KINDS))}"
        if frame.ttl < 0:
            return device.INVALID, "`ttl` is negative"
        if len(frame.refs) > MAX_REFS or (frame.refs and max(map(len, frame.refs)) > MAX_ID):
            return device.INVALID, f"`refs` has over {MAX_REFS} ids, or one of over {MAX_ID} characters"
        if frame.trace and (len(frame.trace) > MAX_ID or not (frame.trace.isascii() and frame.trace.isprintable())):
            return device.INVALID, f"`trace` is not at most {MAX_ID} printable ASCII characters"
        if frame.group and not addresses.is_group(frame.group):
            return device.INVALID, "`group` is no group"
        if frame.kind == device.GROUP:
            return ("", "") if addresses.is_group(frame.to) else (device.NO_SUCH_GROUP, "`to` is no group")
        if not addresses.is_number(frame.to):
            return device.NO_SUCH_NUMBER, "`to` is no number: 7 to 15 digits"
        if frame.kind == device.PREKEY and not self._is_own(frame):
            return device.INVALID, "the identity key in `body` is another one than `from` is registered with"
        return "", ""

    def _is_own(self, frame: device.Send) -> bool:
        """May this open a session in its sender's name? What nobody can read opens none."""
        claimed = messages.claimed_identity(frame.body)
        return claimed is None or claimed == self._identities[frame.sender]

    def _request(self, frame: device.Login | device.Logout | device.Check | device.Fetch) -> None:
        if len(self._tasks) >= self._backend.limits.requests:
            self._failed(frame.n, device.OVERLOADED, "too many requests of this connection are in flight")
        elif isinstance(frame, device.Login):
            self._start(frame.n, self._login(frame))
        elif isinstance(frame, device.Logout):
            self._start(frame.n, self._logout(frame))
        elif frame.number not in self.numbers:
            self._failed(frame.n, device.UNAUTHORIZED, f"{frame.number!r} is not logged in on this connection")
        elif isinstance(frame, device.Fetch):
            if len(frame.numbers) > bundles.MAX_NUMBERS:
                self._failed(frame.n, device.TOO_LARGE, f"at most {bundles.MAX_NUMBERS} numbers in a fetch")
            else:
                self._start(frame.n, self._fetch(frame))
        elif len(frame.numbers) > lookups.MAX_NUMBERS:
            self._failed(frame.n, device.TOO_LARGE, f"at most {lookups.MAX_NUMBERS} numbers in a check")
        else:
            try:
                self._backend.lookups.begin(frame.number)
            except lookups.Busy:
                self._failed(frame.n, device.BUSY, "a check of this number is in flight")
                return
            self._start(frame.n, self._check(frame))

    async def _login(self, frame: device.Login) -> None:
        await self._delay.sleep()
        proven = None
        if addresses.is_number(frame.number):
            proven = await self._backend.logins.verify(frame.number, frame.token)
        if not self._transport.is_open:
            return
        if proven is None:
            self._failed(frame.n, device.UNAUTHORIZED, "no such number, or not its token")
            return
        if self._router.is_stale(frame.number, frame.epoch):
            self._failed(frame.n, device.STALE_EPOCH, "the device is logged in under a higher epoch")
            return
        self._transport.send(device.Ok(n=frame.n))
        self._router.attach(frame.number, self, frame.epoch)
        self.numbers.add(frame.number)
        self._identities[frame.number] = proven.identity_key
        self._backend.refills.attached(frame.number, proven.left, self)

    async def _logout(self, frame: device.Logout) -> None:
        await self._delay.sleep()
        self._router.detach(frame.number, self)
        self._transport.send(device.Ok(n=frame.n))

    async def _check(self, frame: device.Check) -> None:
        try:
            await self._delay.sleep()
            registered = await self._backend.lookups.check(frame.number, frame.numbers)
        finally:
            self._backend.lookups.end(frame.number)
        self._transport.send(device.Checked(n=frame.n, registered=registered))

    async def _fetch(self, frame: device.Fetch) -> None:
        await self._delay.sleep()
        found = await self._backend.bundles.fetch(frame.number, frame.numbers)
        self._transport.send(device.Bundles(n=frame.n, bundles=found))

    def _start(self, n: int, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(self._guard(n, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, n: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (BatcherFull, BatcherClosed):
            self._failed(n, device.OVERLOADED, "too much is waiting for the database")
        except Exception:
            log.exception("request.failed", extra={"peer": self._transport.peer, "n": n})
            self._failed(n, device.OVERLOADED, "it could not be done now")

    def _failed(self, n: int, reason: str, detail: str) -> None:
        FAILED.labels(reason).inc()
        self._transport.send(device.Failed(n=n, reason=reason, detail=detail))

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
        if not self._accepted:
            self._loop.call_soon(self._flush_accepted)
        self._accepted.append(n)

    def _flush_accepted(self) -> None:
        if not self._accepted:
            return
        self._transport.send(device.Accepted(n=self._accepted))
        self._accepted = []

    def refused(self, n: int, reason: str, detail: str = "", retry_after: int = 0) -> None:
        """Say so."""
        self._transport.send(device.Refused(n=n, reason=reason, detail=detail, retry_after=retry_after))

    def detached(self, number: str, reason: str) -> None:
        """A device is no longer on this connection; a reason, if there is one, is sent to it."""
        self.numbers.discard(number)
        self._identities.pop(number, None)
        self._backend.refills.detached(number, self)
        if reason:
            self._transport.send(device.Closing(reason=reason, number=number))

    def prekeys_low(self, number: str, left: Counts) -> None:
        """Ask a device for more one-time pre-keys."""
        self._transport.send(
            device.PreKeysLow(number=number, remaining=left.prekeys, kyber_remaining=left.kyber_prekeys)
        )

    # The end.

    def close(self, reason: str, detail: str = "") -> None:
        """Say why, and close."""
        if self._accepted:
            self._flush_accepted()
        self._transport.send(device.Closing(reason=reason, detail=detail))
        self._transport.close(reason)

    def closed(self, reason: str) -> None:
        """The connection is gone: what was in flight is put into the mailboxes."""
        for task in self._tasks:
            task.cancel()
        devices = len(self.numbers)
        # Nobody gets a turn on it any more.
        self.waiting.clear()
        for number in list(self.numbers):
            self._router.detach(number, self)
        log.info(
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
