"""Log lines about refused logins: a limited number per second, and without names of unknown users."""

from __future__ import annotations

import logging

from tidings.aio.clock import Clock
from tidings.aio.token_buckets import TokenBuckets

# This name is kept so that existing log filters match.
log = logging.getLogger("webapp.api.users.service")

# Lines per second, and lines at once.
RATE, BURST = 1.0, 10


class Refusals:
    """Writes a line per refusal within the rate limit. The next line reports how many were left out."""

    def __init__(self, clock: Clock) -> None:
        self._lines: TokenBuckets[str] = TokenBuckets(clock, rate=RATE, burst=BURST, remembered=1)
        self._left_out = 0

    def note(self, username: str | None, address: str, reason: str) -> None:
        """Log a refused login.

        username: `None` unless such a user exists, since other input may be a password
        """
        if self._lines.take(""):
            self._left_out += 1
            return
        named = {} if username is None else {"username": username}
        left_out = {"left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        log.info("user.login_refused", extra={**named, "address": address, "reason": reason, **left_out})
