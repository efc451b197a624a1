"""Log lines about clients that name others in `X-Forwarded-For` and are no trusted proxies: one in ten minutes."""

from __future__ import annotations

import logging
import math

from tidings.runtime.clock import Clock

log = logging.getLogger(__name__)

# Seconds between two lines, whatever addresses they are about: every client may send the header.
PERIOD = 600.0


class UntrustedForwarders:
    """Warns of a proxy that `TIDINGS_TRUSTED_PROXIES` leaves out, so that all of its clients count as one address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged_at = -math.inf
        self._count = 0

    def seen(self, host: str) -> None:
        """Note a request with the header from an address that is not trusted."""
        self._count += 1
        now = self._clock.monotonic()
        if now - self._logged_at < PERIOD:
            return
        fields = {"peer": host, "requests": self._count, "variable": "TIDINGS_TRUSTED_PROXIES"}
        log.warning("forwarded.not_trusted", extra=fields)
        self._logged_at, self._count = now, 0
