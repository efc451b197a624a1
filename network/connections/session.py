"""Session of one connection: handling of its devices' frames, independent of the transport."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Callable
from typing import Any, Protocol

from network.connections.backend import Backend
from network.connections.requests import DeviceRequests, LoggedIn
from network.directory.logins import VerifiedDevice
from network.routing.delivery_queue import DeliveryQueue
from tidings.aio.token_buckets import RateLimit
from tidings.e2ee import messages
from tidings.net import unauthenticated
from tidings.net.unauthenticated import UnauthenticatedConnection
from tidings.storage.network.prekeys import PreKeyCounts
from tidings.wire import addresses, device
from tidings.wire.connection import FULL, PACED, Connection

MAX_BODY = 128 * 1024  # Bytes of a body.
MAX_ID = 64  # Characters of an id.
MAX_REFS = 1000  # Ids in `refs`.
# Largest integer that all programs and databases represent exactly.
MAX_NUMBER = 2**53 - 1
_KINDS = frozenset(
    (device.PREKEY, device.MESSAGE, device.DELIVERED, device.READ, device.RETRY, device.GROUP, device.TRANSIENT)
)


def validate(frame: device.Send, identity: bytes | None) -> tuple[str, str]:
    """Return the reason and the detail of a refusal, both empty for a well-formed envelope.

    identity: key that the sender is registered with; `None` when the sender is not logged in on its connection.
    """
    if identity is None:
        return device.INVALID, "`from` is not logged in on this connection"
    if len(frame.body) > MAX_BODY:
        return device.TOO_LARGE, f"`body` has {len(frame.body)} bytes, the limit is {MAX_BODY}"
    # Some databases ignore blanks at the end of an id.
    if not 0 < len(frame.id) <= MAX_ID or " " in frame.id or not (frame.id.isascii() and frame.id.isprintable()):
        return device.INVALID, f"`id` is not 1 to {MAX_ID} printable ASCII characters without blanks"
    if frame.kind not in _KINDS:
        return device.INVALID, f"`kind` is none of {', '.join(sorted(_KINDS))}"
    if frame.ttl < 0:
        return device.INVALID, "`ttl` is negative"
    if not 0 <= frame.epoch <= MAX_NUMBER:
        return device.INVALID, "`epoch` is not from 0 to 2^53 - 1"
    if len(frame.refs) > MAX_REFS or (frame.refs and max(map(len, frame.refs)) > MAX_ID):
        return device.INVALID, f"`refs` has over {MAX_REFS} ids, or one of over {MAX_ID} characters"
    if frame.trace and (len(frame.trace) > MAX_ID or not (frame.trace.isascii() and frame.trace.isprintable())):
        return device.INVALID, f"`trace` is not at most {MAX_ID} printable ASCII characters"
    if frame.group and not addresses.is_group(frame.group):
        return device.INVALID, "`group` is not a group id"
    if frame.kind == device.GROUP:
        return ("", "") if addresses.is_group(frame.to) else (device.NO_SUCH_GROUP, "`to` is not a group id")
    if not addresses.is_number(frame.to):
        return device.NO_SUCH_NUMBER, "`to` is not a number of 7 to 15 digits"
    if frame.kind == device.PREKEY and not _has_own_identity(frame, identity):
        return device.INVALID, "the identity key in `body` is not the one that `from` is registered with"
    return "", ""


def _has_own_identity(frame: device.Send, identity: bytes) -> bool:
    """Return whether this envelope may open a session in its sender's name. An unreadable one opens no session and
    passes.
    """
    claimed = messages.claimed_identity(frame.body)
    return claimed is None or claimed == identity


# Rate-limit tokens for a frame other than a login.
OTHER_FRAME_TOKENS = 0.1


@dataclasses.dataclass(slots=True, eq=False)
class UnauthenticatedSession:
    """Handler of an unauthenticated connection: logins, one at a time, and pings.

    Each frame waits for its rate-limit token. Other frames are refused and have no effect. Nothing is read while a
    login waits for the one before it.
    """

    transport: Connection
    slot: UnauthenticatedConnection
    # Carries out the login of a frame, and calls its second argument when the login is over.
    log_in: Callable[[device.Login, Callable[[], None]], None]
    _next: device.Login | None = None

    def received(self, frame: device.FromDevice) -> None:
        """Handle one frame, at once or when its token is available; later frames wait for it."""
        wait = self.slot.reserve(1.0 if isinstance(frame, device.Login) else OTHER_FRAME_TOKENS)
        if wait > 0:
            self.transport.pause(PACED)
            asyncio.get_running_loop().call_later(wait, self._received_in_time, frame)
        else:
            self._handle(frame)

    def _received_in_time(self, frame: device.FromDevice) -> None:
        if self.transport.is_open:
            self._handle(frame)
        self.transport.resume(PACED)

    def _handle(self, frame: device.FromDevice) -> None:
        if isinstance(frame, device.Login):
            if self.slot.busy:
                self._next = frame
                self.transport.pause(FULL)
            else:
                self._begin(frame)
        elif isinstance(frame, device.Ping):
            self.transport.send(device.Pong())
        elif isinstance(frame, device.Send):
            reason, detail = validate(frame, None)
            self.transport.send(device.Refused(n=frame.n, reason=reason, detail=detail))
        elif isinstance(frame, device.Logout):
            self.transport.send(device.Ok(n=frame.n))
        elif not isinstance(frame, device.Ack):
            detail = "no device is logged in on this connection"
            self.transport.send(device.Failed(n=frame.n, reason=device.UNAUTHORIZED, detail=detail))

    def _begin(self, frame: device.Login) -> None:
        self.slot.busy = True
        self.log_in(frame, self._login_ended)

    def _login_ended(self) -> None:
        self.slot.busy = False
        frame, self._next = self._next, None
        if frame is not None:
            self.transport.resume(FULL)
            self._begin(frame)


log = logging.getLogger(__name__)

# Sends that are delayed at the same time to simulate a distant network; one more is refused as `overloaded`.
MAX_DELAYED = 200_000
# Rate of frames without effect: pings, refused frames and acknowledgements of unknown deliveries. 100 of the latter
# cost as much as one ping.
INEFFECTIVE = RateLimit(0.01, 1000.0)
STRAYS_PER_TOKEN = 100


class SessionOwner(Protocol):
    """All open connections of the process."""

    # Whether frames are ignored, because the process stores everything undecided and stops.
    is_stopping: bool

    def opened(self, session: DeviceSession) -> None:
        """Register a new connection. It may be closed again at once, with a reason."""

    def closed(self, session: DeviceSession) -> None:
        """Remove a closed connection."""


# A process may have 100,000 sessions, most of them idle.
@dataclasses.dataclass(slots=True, eq=False)
class DeviceSession:
    """One connection with any number of devices on it. Every method is called on the event loop and returns at once.

    Slower work is done by its `DeviceRequests`. Reading stops while `Limits.sends` of its sends have no response.
    Frames without effect are rate-limited. While no device is logged in, its `UnauthenticatedSession` handles all
    frames.
    """

    owner: SessionOwner
    backend: Backend
    # Its slot until it is open, `None` afterwards. A connection that lasts for days keeps no reference to it.
    slot: UnauthenticatedConnection | None
    transport: Connection = dataclasses.field(init=False)
    # Devices on it, by number. Registering one again detaches it.
    devices: dict[str, LoggedIn] = dataclasses.field(default_factory=dict)
    # For the router: as in `RecipientConnection`.
    deliveries: dict[int, DeliveryQueue] = dataclasses.field(default_factory=dict)
    in_flight_bytes: int = 0
    waiting: dict[DeliveryQueue, None] = dataclasses.field(default_factory=dict)
    # Whether no device has ever logged in on it.
    _is_new: bool = True
    _unauthenticated: UnauthenticatedSession | None = None
    # State of `INEFFECTIVE`, event-loop time in seconds.
    _ineffective_until: float = 0.0
    # Sends without a response; reading is stopped because there are too many.
    _unanswered: int = 0
    _is_full: bool = False
    # Requests in flight; `None` when there are none.
    _requests: DeviceRequests | None = None
    # Sends to be confirmed in one `Accepted` frame; `None` when there are none.
    _accepted: list[int] | None = None
    _last_delivery: int = 0
    _sent: int = 0
    _loop: asyncio.AbstractEventLoop = dataclasses.field(default_factory=asyncio.get_running_loop)
    # Event-loop time in seconds.
    _opened_at: float = 0.0

    # Events of the connection.

    def opened(self, connection: Connection) -> None:
        """Wait for a login within `Limits.login` seconds."""
        assert self.slot is not None
        self.transport = connection
        self._opened_at = self._loop.time()
        connection.limit(frame=unauthenticated.FRAME, unread=unauthenticated.UNREAD)
        self.slot.expire(self.backend.limits.login, functools.partial(self.close, device.NO_LOGIN))
        self._begin_unauthenticated(self.slot)
        self.slot = None
        self.owner.opened(self)

    def received(self, connection: Connection, frame: Any) -> None:
        """Handle one frame."""
        if self.owner.is_stopping:
            return
        if self._unauthenticated is not None:
            self._unauthenticated.received(frame)
        elif isinstance(frame, device.Send):
            self._sent += 1
            self._send(frame)
        elif isinstance(frame, device.Ack):
            strays = self.backend.router.acked(self, frame.n)
            if strays:
                self.consume(strays / STRAYS_PER_TOKEN)
        elif isinstance(frame, device.Ping):
            self.consume()
            self.transport.send(device.Pong())
        else:
            self._get_requests().begin(frame)

    def closed(self, connection: Connection, reason: str) -> None:
        """Detach all devices of a closed connection; the router puts their deliveries in flight into the mailboxes."""
        self.owner.closed(self)
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        devices = len(self.devices)
        # No queue waits for this connection any longer.
        self.waiting.clear()
        for number in list(self.devices):
            self.backend.router.detach(number, self)
        if self._unauthenticated is not None:
            self._unauthenticated.slot.release()
        # At INFO, unauthenticated clients could fill the log.
        log.log(
            logging.DEBUG if self._is_new else logging.INFO,
            "connection.closed",
            extra={
                "peer": self.transport.peer,
                "reason": reason,
                "devices": devices,
                "sent": self._sent,
                "delivered": self._last_delivery,
                "seconds": round(self._loop.time() - self._opened_at, 1),
            },
        )

    def consume(self, cost: float = 1.0) -> None:
        """Consume tokens for a frame without effect; reading continues when they are available."""
        now = self._loop.time()
        self._ineffective_until = INEFFECTIVE.consume(self._ineffective_until, now, cost)
        self.transport.pause_for(PACED, INEFFECTIVE.wait(self._ineffective_until, now, 0))

    # While no device is logged in.

    def _begin_unauthenticated(self, slot: UnauthenticatedConnection) -> None:
        slot.close = self._evicted
        self._unauthenticated = UnauthenticatedSession(self.transport, slot, self._begin_login)

    def _begin_login(self, frame: device.Login, answered: Callable[[], None]) -> None:
        self._get_requests().begin_login(frame, answered)

    def log_in(self, frame: device.Login, part: device.Partition, verified: VerifiedDevice) -> None:
        """Attach this device, which has proved its identity, to this connection."""
        if frame.number in self.devices:
            self.consume()
        if self._unauthenticated is not None:
            self._unauthenticated.slot.mark_authenticated()
            self._unauthenticated = None
            self._is_new = False
            self.transport.limit()
        self.transport.send(device.Ok(n=frame.n))
        self.backend.router.attach(frame.number, self, frame.epoch, part)
        self.devices[frame.number] = LoggedIn(part, verified.identity_key, verified.token_hash)
        if part.partition == 0:
            self.backend.directory.refills.attached(frame.number, verified.left, self)

    def _last_device_detached(self) -> None:
        """Handle the detachment of the last device: take a slot for unauthenticated connections again, or close."""
        slot = self.backend.unauthenticated.admit(self.transport.host)
        if slot is None:
            self._evicted()
        else:
            self._begin_unauthenticated(slot)

    def _evicted(self) -> None:
        if self.transport.is_open:
            self.close(device.OVERLOADED, "another unauthenticated client needs the slot")

    # Sends.

    def _send(self, frame: device.Send) -> None:
        self._unanswered += 1
        if self._unanswered >= self.backend.limits.sends and not self._is_full:
            self._is_full = True
            self.transport.pause(FULL)
        sender = self.devices.get(frame.sender)
        reason, detail = validate(frame, sender.identity_key if sender is not None else None)
        if reason:
            self.consume()
            self.refused(frame.n, reason, detail)
            return
        # A larger TTL is capped by the network anyway; this cap keeps it readable for every node.
        frame.ttl = min(frame.ttl, MAX_NUMBER)
        if not self.backend.delay.active:
            self._route(frame)
        elif self.backend.delay.waiting >= MAX_DELAYED:
            self.refused(frame.n, device.OVERLOADED)
        else:
            self.backend.delay.call((frame.sender, frame.to), functools.partial(self._send_now, frame))

    def _send_now(self, frame: device.Send) -> None:
        if frame.sender in self.devices:
            self._route(frame)
        else:
            self.refused(frame.n, device.INVALID, "`from` is no longer logged in on this connection")

    def _route(self, frame: device.Send) -> None:
        if frame.kind == device.GROUP:
            self.backend.copies.send(self, frame)
        else:
            self.backend.router.send(self, frame)

    # Requests.

    def _get_requests(self) -> DeviceRequests:
        if self._requests is None:
            self._requests = DeviceRequests(self, self.backend)
        return self._requests

    def log_out(self, number: str) -> None:
        """Detach a device from this connection."""
        self.backend.router.detach(number, self)

    def requests_ended(self) -> None:
        """Drop `DeviceRequests`: none is in flight any longer."""
        self._requests = None

    # Calls by the router.

    @property
    def host(self) -> str:
        """Return the address of the client."""
        return self.transport.host

    def token_of(self, number: str) -> bytes:
        """Return the hash of the token with which a device on this connection has logged in."""
        return self.devices[number].token_hash

    def deliver(self, frame: device.Deliver, queue: DeliveryQueue) -> int:
        """Send one envelope under the next number of this connection; return the number."""
        self._last_delivery = n = self._last_delivery + 1
        self.deliveries[n] = queue
        frame.n = n
        self.transport.send(frame)
        return n

    def deliver_transient(self, frame: device.Deliver) -> None:
        """Send one envelope that is in no window. Its acknowledgement has no effect."""
        self._last_delivery += 1
        frame.n = self._last_delivery
        self.transport.send(frame)

    def accepted(self, n: int) -> None:
        """Confirm a send; all sends accepted in one event-loop iteration are confirmed in one frame."""
        if self._accepted is None:
            self._accepted = []
            self._loop.call_soon(self._flush_accepted)
        self._accepted.append(n)
        self._count_answered()

    def _count_answered(self) -> None:
        """Count a send as answered, and read again when few sends have no response."""
        self._unanswered -= 1
        if self._is_full and 2 * self._unanswered < self.backend.limits.sends:
            self._is_full = False
            self.transport.resume(FULL)

    def _flush_accepted(self) -> None:
        if self._accepted is None:
            return
        accepted, self._accepted = self._accepted, None
        self.transport.send(device.Accepted(n=accepted))

    def refused(self, n: int, reason: str, detail: str = "", retry_after: int = 0) -> None:
        """Refuse a send."""
        self.transport.send(device.Refused(n=n, reason=reason, detail=detail, retry_after=retry_after))
        self._count_answered()

    def superseded(self, n: int) -> None:
        """Count a send as finished without a response: a later send of the same envelope replaces it."""
        self._count_answered()

    def detached(self, number: str, reason: str) -> None:
        """Remove a device from this connection. A reason, if there is one, is sent to the device."""
        self.devices.pop(number, None)
        self.backend.directory.refills.detached(number, self)
        if reason:
            self.transport.send(device.Closing(reason=reason, number=number))
        if not self.devices and self._unauthenticated is None and self.transport.is_open:
            self._last_device_detached()

    def prekeys_low(self, number: str, left: PreKeyCounts) -> None:
        """Ask a device for more one-time pre-keys."""
        self.transport.send(
            device.PreKeysLow(number=number, remaining=left.prekeys, kyber_remaining=left.kyber_prekeys)
        )

    # The end.

    def close(self, reason: str, detail: str = "") -> None:
        """Send the reason, and close."""
        self._flush_accepted()
        self.transport.send(device.Closing(reason=reason, detail=detail))
        self.transport.close(reason)
