"""Connections to the link that have not named its key yet: few, brief, and with small frames."""

from __future__ import annotations

import asyncio
import logging
import math

from prometheus_client import Counter

from tidings.wire.connection import HIGH_WATER, MAX_FRAME, Connection

log = logging.getLogger(__name__)

REFUSED = Counter(
    "tidings_link_refused_total", "Connections to the link that ended before the right key was named", ["why"]
)
WRONG_KEY, NO_HELLO, LATE, EVICTED = "wrong_key", "no_hello", "late", "evicted"
for _why in (WRONG_KEY, NO_HELLO, LATE, EVICTED):
    REFUSED.labels(_why)

# So many at a time; one more, and the oldest makes room for it. A Webapp names the key with its first bytes.
NEWCOMERS = 64
# Seconds that each has.
SECONDS = 10.0
# Bytes of a frame until then, and unread by such a peer until nothing more is read from it.
FRAME, UNREAD = 4 * 1024, 16 * 1024
# Seconds between two lines of the log about wrong keys.
NOTE_SECONDS = 10.0


class Newcomers:
    """All of them, of one process."""

    def __init__(self, limit: int = NEWCOMERS, seconds: float = SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        # The oldest first.
        self._late: dict[Connection, asyncio.TimerHandle] = {}
        self._noted_at = -math.inf

    def __len__(self) -> int:
        return len(self._late)

    def came(self, connection: Connection) -> None:
        """It has been opened."""
        if len(self._late) >= self._limit:
            self._end(next(iter(self._late)), EVICTED)
        connection.limit(frame=FRAME, unread=UNREAD)
        self._late[connection] = asyncio.get_running_loop().call_later(self._seconds, self._end, connection, LATE)

    def trusted(self, connection: Connection) -> None:
        """It has named the key, perhaps once more: it is none of these."""
        if self._forget(connection):
            connection.limit(frame=MAX_FRAME, unread=HIGH_WATER)

    def left(self, connection: Connection) -> None:
        """It is gone. Without effect on one that is none of these."""
        self._forget(connection)

    def refuse(self, connection: Connection, why: str) -> None:
        """It has sent something else than the right key."""
        REFUSED.labels(why).inc()
        self._forget(connection)
        now = asyncio.get_running_loop().time()
        if why == WRONG_KEY and now - self._noted_at >= NOTE_SECONDS:
            # One line for each would let anybody fill the log.
            self._noted_at = now
            log.warning("link.wrong_key", extra={"peer": connection.peer})
        connection.close(why)

    def _end(self, connection: Connection, why: str) -> None:
        if self._forget(connection):
            REFUSED.labels(why).inc()
            connection.abort(why)

    def _forget(self, connection: Connection) -> bool:
        timer = self._late.pop(connection, None)
        if timer is not None:
            timer.cancel()
        return timer is not None
