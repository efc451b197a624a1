"""Listeners with TLS: handshakes that are bounded, after which a connection is its protocol's."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import Counter, Gauge

from tidings.runtime import tls
from tidings.runtime.strangers import key_of

log = logging.getLogger(__name__)

HANDSHAKES = Counter(
    "tidings_tls_handshakes_total",
    "Handshakes of listeners: done, failed, late (10 s), or refused because too many were under way",
    ["listener", "result"],
)
UNDER_WAY = Gauge("tidings_tls_handshakes_under_way", "Handshakes that are not done", ["listener"])

# Handshakes that may be under way at once: of one address (IPv6: a /64), and of all.
OF_ONE, OF_ALL = 32, 256
# Seconds between two lines of the log about handshakes that failed.
NOTE_SECONDS = 10.0
# Seconds to wait where the system has no descriptor or memory for another connection.
EXHAUSTED_SECONDS = 1.0
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Handshakes:
    """How many handshakes one listener has under way; one more is refused, its connection closed unread."""

    def __init__(
        self,
        listener: str,
        *,
        of_one: int = OF_ONE,
        of_all: int = OF_ALL,
        seconds: float = tls.HANDSHAKE_SECONDS,
    ) -> None:
        """listener: in metrics and the log. seconds: that each may take."""
        self.seconds = seconds
        self._listener = listener
        self._of_one = of_one
        self._of_all = of_all
        self._count = 0
        self._counts: dict[str, int] = {}
        self._noted_at = -math.inf
        self._under_way = UNDER_WAY.labels(listener)
        self._results = {word: HANDSHAKES.labels(listener, word) for word in ("done", "failed", "late", "refused")}

    def enter(self, key: str) -> bool:
        """A place, until `leave`. key: of the address."""
        if self._count >= self._of_all or self._counts.get(key, 0) >= self._of_one:
            self._results["refused"].inc()
            return False
        self._count += 1
        self._counts[key] = self._counts.get(key, 0) + 1
        self._under_way.set(self._count)
        return True

    def leave(self, key: str, result: str) -> None:
        """Give the place back. result: `done`, `failed` or `late`."""
        self._results[result].inc()
        self._count -= 1
        self._under_way.set(self._count)
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]

    def note(self, key: str, error: Exception) -> None:
        """Log why one has failed, which the other side does not hear: at most one in so many seconds."""
        now = asyncio.get_running_loop().time()
        if now - self._noted_at >= NOTE_SECONDS:
            self._noted_at = now
            why = tls.describe(error) if isinstance(error, ssl.SSLError) else str(error) or "it went away"
            log.warning("tls.handshake_failed", extra={"listener": self._listener, "peer": key, "error": why[:200]})


class TlsServer:
    """Accepts connections on sockets, as `asyncio.Server` does, and has `make` make a protocol for each.

    A connection that is not through its handshake is nobody's but ours: its protocol hears of it afterwards.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        make: Callable[[], Any],
        *,
        context: ssl.SSLContext,
        handshakes: Handshakes,
    ) -> None:
        """sockets: that listen; they are closed with this."""
        self.sockets = tuple(sockets)
        self._make = make
        self._context = context
        self._handshakes = handshakes
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Accept from now on."""
        for listener in self.sockets:
            listener.setblocking(False)
            self._begin(self._accept(listener))

    def close(self) -> None:
        """Accept no more; handshakes that are under way end, connections stay."""
        for task in self._tasks:
            task.cancel()
        for listener in self.sockets:
            listener.close()

    async def wait_closed(self) -> None:
        """Return when everything that `close` has ended is over."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    log.error("tls.cannot_accept", extra={"error": error.strerror})
                    await asyncio.sleep(EXHAUSTED_SECONDS)
                continue
            key = key_of(str(peer[0]))
            if self._handshakes.enter(key):
                self._begin(self._secure(connection, key))
            else:
                connection.close()

    async def _secure(self, connection: socket.socket, key: str) -> None:
        result = "failed"
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._handshakes.seconds,
                ssl_shutdown_timeout=tls.GOODBYE_SECONDS,
            )
            result = "done"
        except ConnectionAbortedError:
            # So the event loops say that it took too long.
            result = "late"
        except OSError as error:
            self._handshakes.note(key, error)
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            self._handshakes.leave(key, result)


def listen(host: str, port: int, *, backlog: int = 100) -> socket.socket:
    """A socket for `TlsServer`. Raises `OSError`."""
    return socket.create_server(
        (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=backlog
    )
