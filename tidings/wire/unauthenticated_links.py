"""Limits on link connections that have not sent the link key yet: their number, their time and the size of frames."""

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

# Unauthenticated connections at a time; one more evicts the oldest. A Webapp sends the key in its first bytes.
UNAUTHENTICATED = 64
SECONDS = 10.0  # until such a connection is closed
# Bytes: longest frame before the key, and unread data above which nothing more is read from such a peer.
FRAME, UNREAD = 4 * 1024, 16 * 1024
NOTE_SECONDS = 10.0  # between two log lines about wrong keys


class UnauthenticatedLinks:
    """Unauthenticated connections to the link, of one process."""

    def __init__(self, limit: int = UNAUTHENTICATED, seconds: float = SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        # Timers by connection, oldest first.
        self._late: dict[Connection, asyncio.TimerHandle] = {}
        self._noted_at = -math.inf

    def __len__(self) -> int:
        return len(self._late)

    def opened(self, connection: Connection) -> None:
        """Limit a new connection; evict the oldest when there are too many."""
        if len(self._late) >= self._limit:
            self._end(next(iter(self._late)), EVICTED)
        connection.limit(frame=FRAME, unread=UNREAD)
        self._late[connection] = asyncio.get_running_loop().call_later(self._seconds, self._end, connection, LATE)

    def authenticated(self, connection: Connection) -> None:
        """Lift the limits of a connection that has sent the key. May be called again."""
        if self._remove(connection):
            connection.limit(frame=MAX_FRAME, unread=HIGH_WATER)

    def closed(self, connection: Connection) -> None:
        """Forget a closed connection. Does nothing for an authenticated one."""
        self._remove(connection)

    def refuse(self, connection: Connection, why: str) -> None:
        """Close a connection that sent something other than the right key."""
        REFUSED.labels(why).inc()
        self._remove(connection)
        now = asyncio.get_running_loop().time()
        if why == WRONG_KEY and now - self._noted_at >= NOTE_SECONDS:
            # Limited, so that no client can fill the log.
            self._noted_at = now
            log.warning("link.wrong_key", extra={"peer": connection.peer})
        connection.close(why)

    def _end(self, connection: Connection, why: str) -> None:
        if self._remove(connection):
            REFUSED.labels(why).inc()
            connection.abort(why)

    def _remove(self, connection: Connection) -> bool:
        timer = self._late.pop(connection, None)
        if timer is not None:
            timer.cancel()
        return timer is not None
