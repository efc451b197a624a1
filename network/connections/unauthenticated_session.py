"""Frames of a connection while no device is logged in on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from network.connections import sends
from network.connections.connection_slots import ConnectionSlot
from network.connections.transport import Transport
from tidings.wire import device
from tidings.wire.connection import FULL, PACED

# Largest frame before the first login, and bytes unread by such a peer at which reading from it stops.
FRAME = 4 * 1024
UNREAD = 16 * 1024
# Rate-limit tokens for a frame other than a login.
OTHER = 0.1


class UnauthenticatedSession:
    """Handler of an unauthenticated connection: logins, one at a time, and pings.

    Each frame waits for its rate-limit token. Other frames are refused and have no effect. Nothing is read while a
    login waits for the one before it.
    """

    def __init__(
        self,
        transport: Transport,
        slot: ConnectionSlot,
        log_in: Callable[[device.Login, Callable[[], None]], None],
        *,
        evict: Callable[[], None],
    ) -> None:
        """log_in: carry out the login of a frame, and call its second argument when the login is over.
        evict: called when another connection takes the slot.
        """
        self._transport = transport
        self._slot = slot
        self._log_in = log_in
        self._next: device.Login | None = None
        slot.on_eviction(evict)

    @property
    def is_busy(self) -> bool:
        """Return whether a login is in progress."""
        return self._slot.busy

    def received(self, frame: device.FromDevice) -> None:
        """Handle one frame, at once or when its token is available; later frames wait for it."""
        wait = self._slot.reserve(1.0 if isinstance(frame, device.Login) else OTHER)
        if wait > 0:
            self._transport.pause(PACED)
            asyncio.get_running_loop().call_later(wait, self._received_in_time, frame)
        else:
            self._do(frame)

    def _received_in_time(self, frame: device.FromDevice) -> None:
        if self._transport.is_open:
            self._do(frame)
        self._transport.resume(PACED)

    def _do(self, frame: device.FromDevice) -> None:
        if isinstance(frame, device.Login):
            if self._slot.busy:
                self._next = frame
                self._transport.pause(FULL)
            else:
                self._begin(frame)
        elif isinstance(frame, device.Ping):
            self._transport.send(device.Pong())
        elif isinstance(frame, device.Send):
            reason, detail = sends.judge(frame, None)
            self._transport.send(device.Refused(n=frame.n, reason=reason, detail=detail))
        elif isinstance(frame, device.Logout):
            self._transport.send(device.Ok(n=frame.n))
        elif not isinstance(frame, device.Ack):
            detail = "nobody is logged in on this connection"
            self._transport.send(device.Failed(n=frame.n, reason=device.UNAUTHORIZED, detail=detail))

    def _begin(self, frame: device.Login) -> None:
        self._slot.busy = True
        self._log_in(frame, self._answered)

    def _answered(self) -> None:
        self._slot.busy = False
        frame, self._next = self._next, None
        if frame is not None:
            self._transport.resume(FULL)
            self._begin(frame)

    def mark_authenticated(self) -> None:
        """Record that a device has logged in."""
        self._slot.mark_authenticated()

    def left(self) -> None:
        """Record that the connection is closed."""
        self._slot.left()
