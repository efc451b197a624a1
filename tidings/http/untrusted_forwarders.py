"""Warning about clients that send `X-Forwarded-For` without being trusted proxies, at most every ten minutes."""

from __future__ import annotations

import logging
import math

from tidings.aio.clock import Clock

log = logging.getLogger(__name__)

# Seconds between two log lines for all addresses together: every client may send the header.
PERIOD = 600.0


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
        if now - self._logged_at < PERIOD:
            return
        fields = {"peer": host, "requests": self._count, "variable": "TIDINGS_TRUSTED_PROXIES"}
        log.warning("forwarded.not_trusted", extra=fields)
        self._logged_at, self._count = now, 0
