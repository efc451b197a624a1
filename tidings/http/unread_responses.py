"""Time limit on responses that a client does not read."""

from __future__ import annotations

import asyncio
import fcntl
import math
import struct
import termios
from collections.abc import Callable


class UnreadResponses:
    """Aborts a connection whose client reads nothing of the written data for `seconds`."""

    __slots__ = ("_is_brief", "_seconds", "_timer", "_transport", "_unsent")

    def __init__(self, transport: asyncio.Transport, seconds: float, *, is_brief: Callable[[], bool]) -> None:
        """is_brief(): all responses are short, so that the client must have read all of them after `seconds`."""
        self._transport = transport
        self._seconds = seconds
        self._is_brief = is_brief
        self._unsent = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check after `seconds`. Without effect while a check is due."""
        if self._timer is None:
            self._unsent = math.inf if self._is_brief() else self._count_unsent()
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._check)

    def stop(self) -> None:
        """Cancel the check."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if self._is_brief() or self._count_unsent() >= self._unsent:
            self._transport.abort()
        else:
            self.start()

    def _count_unsent(self) -> int:
        """Return the bytes that the client has not acknowledged, in this process and in the kernel."""
        in_system = struct.pack("i", 0)
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            in_system = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, in_system)
        return int(struct.unpack("i", in_system)[0]) + self._transport.get_write_buffer_size()
