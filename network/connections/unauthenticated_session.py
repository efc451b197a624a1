"""Frames of a connection while no device is logged in on it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from network.connections import sends
from tidings.net.unauthenticated import UnauthenticatedConnection
from tidings.wire import device
from tidings.wire.connection import FULL, PACED, Connection

# Rate-limit tokens for a frame other than a login.
OTHER = 0.1


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
        wait = self.slot.reserve(1.0 if isinstance(frame, device.Login) else OTHER)
        if wait > 0:
            self.transport.pause(PACED)
            asyncio.get_running_loop().call_later(wait, self._received_in_time, frame)
        else:
            self._do(frame)

    def _received_in_time(self, frame: device.FromDevice) -> None:
        if self.transport.is_open:
            self._do(frame)
        self.transport.resume(PACED)

    def _do(self, frame: device.FromDevice) -> None:
        if isinstance(frame, device.Login):
            if self.slot.busy:
                self._next = frame
                self.transport.pause(FULL)
            else:
                self._begin(frame)
        elif isinstance(frame, device.Ping):
            self.transport.send(device.Pong())
        elif isinstance(frame, device.Send):
            reason, detail = sends.judge(frame, None)
            self.transport.send(device.Refused(n=frame.n, reason=reason, detail=detail))
        elif isinstance(frame, device.Logout):
            self.transport.send(device.Ok(n=frame.n))
        elif not isinstance(frame, device.Ack):
            detail = "no device is logged in on this connection"
            self.transport.send(device.Failed(n=frame.n, reason=device.UNAUTHORIZED, detail=detail))

    def _begin(self, frame: device.Login) -> None:
        self.slot.busy = True
        self.log_in(frame, self._answered)

    def _answered(self) -> None:
        self.slot.busy = False
        frame, self._next = self._next, None
        if frame is not None:
            self.transport.resume(FULL)
            self._begin(frame)
