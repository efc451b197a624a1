"""Log lines about clients, at a bounded rate: about refused connections, and about proxies that are not trusted."""

from __future__ import annotations

import logging
import math

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU

log = logging.getLogger(__name__)

# Seconds between two lines about one address.
PERIOD = 60.0
# Lines per period for all addresses: a flood from very many must not fill the disk.
LINES = 100
# Addresses remembered.
REMEMBERED = 1_000
# Seconds between two lines about `X-Forwarded-For` for all addresses together: every client may send the header.
FORWARDED_PERIOD = 600.0


class RefusalLog:
    """Logs refused connections. A line contains the number of refusals from its address since the last line."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Time of the last line about an address (`Clock.monotonic`), and refusals since.
        self._noted: LRU[str, tuple[float, int]] = LRU(REMEMBERED)
        self._period_ends = 0.0
        self._lines = 0

    def __len__(self) -> int:
        return len(self._noted)

    def refused(self, address: str, reason: str) -> None:
        """Record a refusal, and log it unless the limit is reached. address: as returned by
        `unauthenticated.key_of`."""
        now = self._clock.monotonic()
        noted_at, count = self._noted.get(address) or (-PERIOD, 0)
        if now - noted_at < PERIOD or not self._may_log(now):
            self._noted.put(address, (noted_at, count + 1))
            return
        self._noted.put(address, (now, 0))
        log.warning("http.connections_refused", extra={"peer": address, "reason": reason, "refused": count + 1})

    def _may_log(self, now: float) -> bool:
        if now >= self._period_ends:
            self._period_ends, self._lines = now + PERIOD, 0
        self._lines += 1
        return self._lines <= LINES


class UntrustedForwarders:
    """Warns about a proxy that `TIDINGS_TRUSTED_PROXIES` lacks, so that all of its clients count as one address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged_at = -math.inf
        self._count = 0

    def seen(self, host: str) -> None:
        """Count a request with the header from an untrusted address, and log it if a line is due."""
        self._count += 1
        now = self._clock.monotonic()
        if now - self._logged_at < FORWARDED_PERIOD:
            return
        fields = {"peer": host, "requests": self._count, "variable": "TIDINGS_TRUSTED_PROXIES"}
        log.warning("forwarded.not_trusted", extra=fields)
        self._logged_at, self._count = now, 0
