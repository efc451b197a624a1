"""Session of one connection: handling of its devices' frames, independent of the transport."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable

from network.connections import sends, unauthenticated_session
from network.connections.backend import Backend
from network.connections.connection_slots import ConnectionSlot
from network.connections.frame_rate_limit import FrameRateLimit
from network.connections.requests import DeviceRequests, LoggedIn
from network.connections.transport import Transport
from network.connections.unauthenticated_session import UnauthenticatedSession
from network.directory.logins import Proven
from network.routing.delivery_queue import DeliveryQueue
from tidings.storage.network.prekeys import Counts
from tidings.wire import device
from tidings.wire.connection import FULL, MAX_FRAME, PACED

log = logging.getLogger(__name__)

# Sends that may be delayed at a time to simulate a distant network; one more is refused as `overloaded`.
MAX_DELAYED = 200_000
# Bytes unread by a peer at which reading from it stops.
UNREAD = 1024 * 1024
# Acknowledgements of unknown deliveries that cost as much as one ping.
STRAYS = 100


class DeviceSession:
    """One connection with any number of devices on it. Every method is called on the event loop and returns at once.

    Slower work is done by its `DeviceRequests`. Reading stops while `Limits.sends` of its sends have no response.
    Frames without effect are rate-limited by its `FrameRateLimit`. While no device is logged in, its
    `UnauthenticatedSession` handles all frames.

    is_new: no device has ever logged in on it.
    devices: devices on it, by number. Registering one again detaches it.
    """

    # A process may have 100,000 sessions, most of them idle.
    __slots__ = (
        "_accepted",
        "_backend",
        "_delay",
        "_delayed",
        "_is_full",
        "_is_paced",
        "_last_delivery",
        "_loop",
        "_opened_at",
        "_rate_limit",
        "_requests",
        "_router",
        "_sent",
        "_transport",
        "_unanswered",
        "_unauthenticated",
        "deliveries",
        "devices",
        "in_flight_bytes",
        "is_new",
        "waiting",
    )

    def __init__(self, transport: Transport, backend: Backend, slot: ConnectionSlot) -> None:
        self._transport = transport
        transport.limit(frame=unauthenticated_session.FRAME, unread=unauthenticated_session.UNREAD)
        self._unauthenticated: UnauthenticatedSession | None = UnauthenticatedSession(
            transport, slot, self._only_login, evict=self._evicted
        )
        self.is_new = True
        # Created with the first frame that consumes tokens.
        self._rate_limit: FrameRateLimit | None = None
        self._is_paced = self._is_full = False
        self._unanswered = 0
        self._backend = backend
        self._router = backend.router
        self._delay = backend.delay
        self._delayed = backend.delay.active
        self._loop = asyncio.get_running_loop()
        # Requests in flight; `None` when there are none.
        self._requests: DeviceRequests | None = None
        # Sends to be confirmed in one `Accepted` frame; `None` when there are none.
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
        """Return the transport of its frames."""
        return self._transport

    # Frames from the device.

    def received(self, frame: device.FromDevice) -> None:
        """Handle one frame."""
        if self._unauthenticated is not None:
            self._unauthenticated.received(frame)
        elif isinstance(frame, device.Send):
            self._sent += 1
            self._send(frame)
        elif isinstance(frame, device.Ack):
            strays = self._router.acked(self, frame.n)
            if strays:
                self.consume(strays / STRAYS)
        elif isinstance(frame, device.Ping):
            self.consume()
            self._transport.send(device.Pong())
        else:
            self._get_requests().begin(frame)

    def consume(self, cost: float = 1.0) -> None:
        """Consume tokens for a frame without effect; reading continues when they are available."""
        if self._rate_limit is None:
            self._rate_limit = FrameRateLimit()
        wait = self._rate_limit.take(self._loop.time(), cost)
        if wait > 0 and not self._is_paced:
            self._is_paced = True
            self._transport.pause(PACED)
            self._loop.call_later(wait, self._paced)

    def _paced(self) -> None:
        self._is_paced = False
        self._transport.resume(PACED)

    # While no device is logged in.

    @property
    def is_waiting_for_login(self) -> bool:
        """Return whether no device is logged in and no login is in progress."""
        return self._unauthenticated is not None and not self._unauthenticated.is_busy

    def _only_login(self, frame: device.Login, answered: Callable[[], None]) -> None:
        self._get_requests().begin_login(frame, answered)

    def log_in(self, frame: device.Login, part: device.Partition, proven: Proven) -> None:
        """Attach this device, which has proved its identity, to this connection."""
        if frame.number in self.devices:
            self.consume()
        if self._unauthenticated is not None:
            self._unauthenticated.mark_authenticated()
            self._unauthenticated = None
            self.is_new = False
            self._transport.limit(frame=MAX_FRAME, unread=UNREAD)
        self._transport.send(device.Ok(n=frame.n))
        self._router.attach(frame.number, self, frame.epoch, part)
        self.devices[frame.number] = LoggedIn(part, proven.identity_key)
        if part.partition == 0:
            self._backend.refills.attached(frame.number, proven.left, self)

    def _left(self) -> None:
        """Handle the detachment of the last device: take a slot for unauthenticated connections again, or close."""
        slot = self._backend.slots.enter_again(self._transport.host)
        if slot is None:
            self._evicted()
        else:
            self._unauthenticated = UnauthenticatedSession(self._transport, slot, self._only_login, evict=self._evicted)

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
            self.consume()
            self.refused(frame.n, reason, detail)
            return
        # A larger TTL is capped by the network anyway; this cap keeps it readable for every node.
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

    # Requests.

    def _get_requests(self) -> DeviceRequests:
        if self._requests is None:
            self._requests = DeviceRequests(self, self._backend)
        return self._requests

    def log_out(self, number: str) -> None:
        """Detach a device from this connection."""
        self._router.detach(number, self)

    def requests_ended(self) -> None:
        """Drop `DeviceRequests`: none is in flight any longer."""
        self._requests = None

    # Calls by the router.

    def deliver(self, frame: device.Deliver, queue: DeliveryQueue) -> int:
        """Send one envelope under the next number of this connection; return the number."""
        self._last_delivery = n = self._last_delivery + 1
        self.deliveries[n] = queue
        frame.n = n
        self._transport.send(frame)
        return n

    def accepted(self, n: int) -> None:
        """Confirm a send; all sends accepted in one event-loop iteration are confirmed in one frame."""
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
        """Refuse a send."""
        self._transport.send(device.Refused(n=n, reason=reason, detail=detail, retry_after=retry_after))
        self._answered()

    def superseded(self, n: int) -> None:
        """Count a send as finished without a response: a later send of the same envelope replaces it."""
        self._answered()

    def detached(self, number: str, reason: str) -> None:
        """Remove a device from this connection. A reason, if there is one, is sent to the device."""
        self.devices.pop(number, None)
        self._backend.refills.detached(number, self)
        if reason:
            self._transport.send(device.Closing(reason=reason, number=number))
        if not self.devices and self._unauthenticated is None and self._transport.is_open:
            self._left()

    def prekeys_low(self, number: str, left: Counts) -> None:
        """Ask a device for more one-time pre-keys."""
        self._transport.send(
            device.PreKeysLow(number=number, remaining=left.prekeys, kyber_remaining=left.kyber_prekeys)
        )

    # The end.

    def close(self, reason: str, detail: str = "") -> None:
        """Send the reason, and close."""
        self._flush_accepted()
        self._transport.send(device.Closing(reason=reason, detail=detail))
        self._transport.close(reason)

    def closed(self, reason: str) -> None:
        """Detach all devices of a closed connection; the router puts their deliveries in flight into the mailboxes."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        devices = len(self.devices)
        # No queue waits for this connection any longer.
        self.waiting.clear()
        for number in list(self.devices):
            self._router.detach(number, self)
        if self._unauthenticated is not None:
            self._unauthenticated.left()
        # At INFO, unauthenticated clients could fill the log.
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
