"""TLS listeners with a bounded number of handshakes; the protocol gets a connection after its handshake."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import socket
import ssl
from collections.abc import Callable
from typing import Any

from prometheus_client import Counter, Gauge

from tidings.aio.clock import SystemClock
from tidings.aio.lru import LRU
from tidings.aio.token_buckets import TokenBuckets
from tidings.net import tls
from tidings.net.socket_server import SocketServer
from tidings.net.unauthenticated import key_of

log = logging.getLogger(__name__)

HANDSHAKES = Counter(
    "tidings_tls_handshakes_total",
    "Handshakes of listeners: done, failed, late (10 s), or refused because too many were in progress",
    ["listener", "result"],
)
UNDER_WAY = Gauge("tidings_tls_handshakes_under_way", "Handshakes in progress", ["listener"])

# Handshakes in progress at once: of one address (IPv6: a /64), and of all.
OF_ONE, OF_ALL = 32, 256
# Seconds that a handshake has before its slot may be given to another one.
GRACE = 1.0
# Seconds without accepting after each refusal.
PAUSE_SECONDS = 0.003
# Addresses remembered because they have completed a handshake.
KNOWN = 1000
# Seconds between two log lines about failed handshakes.
NOTE_SECONDS = 10.0


@dataclasses.dataclass(eq=False, repr=False)
class Handshakes:
    """Limits the handshakes that a listener has in progress; one more is refused and its connection closed unread."""

    listener: str  # name in metrics and the log
    _: dataclasses.KW_ONLY
    of_one: int = OF_ONE  # handshakes in progress of one address
    of_all: int = OF_ALL  # handshakes in progress of all addresses
    seconds: float = tls.HANDSHAKE_SECONDS  # limit of each handshake
    # Handshakes started per second from all addresses that have completed none; 0 is unlimited. For listeners that
    # require a certificate, so that a completed handshake authenticates the client.
    rate: float = 0.0
    burst: float = 1.0  # handshakes started at once under `rate`

    def __post_init__(self) -> None:
        self._begun = TokenBuckets[str](SystemClock(), rate=self.rate, burst=self.burst, remembered=1)
        self._known: LRU[str, bool] = LRU(KNOWN)
        # Addresses of the handshakes in progress: few enough to be counted.
        self._begun_by: list[str] = []
        self._noted_at = -math.inf
        self._under_way = UNDER_WAY.labels(self.listener)
        self._results = {word: HANDSHAKES.labels(self.listener, word) for word in ("done", "failed", "late", "refused")}

    def has_room(self, key: str) -> bool:
        """Return whether another handshake may start. key: of its address."""
        return len(self._begun_by) < self.of_all and self._begun_by.count(key) < self.of_one

    def try_take(self, key: str) -> bool:
        """Take a slot until `release`. Returns false if none is free or the rate for unknown addresses is exceeded."""
        if not self.has_room(key) or (not self._known.get(key) and self._begun.take("")):
            self._results["refused"].inc()
            return False
        self._begun_by.append(key)
        self._under_way.set(len(self._begun_by))
        return True

    def release(self, key: str, result: str) -> None:
        """Release the slot. result: `done`, `failed`, `late` or `refused`."""
        self._results[result].inc()
        if result == "done":
            self._known.put(key, True)
        self._begun_by.remove(key)
        self._under_way.set(len(self._begun_by))

    async def perform(
        self, make: Callable[[], asyncio.BaseProtocol], connection: socket.socket, context: ssl.SSLContext, key: str
    ) -> None:
        """Perform a handshake that has its slot, then release the slot. Raises `OSError`."""
        result = "failed"
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                make,
                connection,
                ssl=context,
                ssl_handshake_timeout=self.seconds,
                ssl_shutdown_timeout=tls.CLOSE_SECONDS,
            )
            result = "done"
        except ConnectionAbortedError:
            # asyncio and uvloop raise this on a timeout.
            result = "late"
            raise
        except OSError as error:
            self.note(key, error)
            raise
        finally:
            self.release(key, result)

    def note(self, key: str, error: Exception) -> None:
        """Log why a handshake has failed, which the client does not learn: at most once in `NOTE_SECONDS`."""
        now = asyncio.get_running_loop().time()
        if now - self._noted_at >= NOTE_SECONDS:
            self._noted_at = now
            why = tls.describe(error) if isinstance(error, ssl.SSLError) else str(error) or "it went away"
            log.warning("tls.handshake_failed", extra={"listener": self.listener, "peer": key, "error": why[:200]})


class TlsServer(SocketServer):
    """Server that creates a protocol with `make` for each connection.

    Without room for another handshake, the oldest is aborted if it started at least `GRACE` seconds ago. The protocol
    gets its connection only after the handshake.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], Any],
        *,
        context: ssl.SSLContext,
        handshakes: Handshakes,
    ) -> None:
        super().__init__(listening, window=PAUSE_SECONDS)
        self._make = make
        self._context = context
        self._handshakes = handshakes
        # Handshakes with their address and start (event-loop time), the oldest first.
        self._slots: dict[asyncio.Task[None], tuple[str, float]] = {}

    def taken(self, connection: socket.socket, host: str) -> None:
        key, now = key_of(host), self._loop.time()
        self._make_room(key, now)
        if self._handshakes.try_take(key):
            self._slots[self.begin(self._secure(connection, key))] = key, now
        else:
            connection.close()
            self.refused()

    def _make_room(self, key: str, now: float) -> None:
        if self._handshakes.has_room(key):
            return
        for task, (whose, began) in self._slots.items():
            if now - began < GRACE:
                return
            # One of the same address, or, when all slots are in use, of any address.
            if whose == key or not self._handshakes.has_room(""):
                self._over(task, "late")
                task.cancel()
                return

    def _over(self, task: asyncio.Task[None], result: str) -> None:
        """Release the slot; no effect if the handshake was aborted."""
        if task in self._slots:
            self._handshakes.release(self._slots.pop(task)[0], result)

    async def _secure(self, connection: socket.socket, key: str) -> None:
        result = "failed"
        try:
            await self._loop.connect_accepted_socket(
                self._make,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._handshakes.seconds,
                ssl_shutdown_timeout=tls.CLOSE_SECONDS,
            )
            result = "done"
        except ConnectionAbortedError:
            # asyncio and uvloop raise this on a timeout.
            result = "late"
        except OSError as error:
            self._handshakes.note(key, error)
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._over(task, result)
