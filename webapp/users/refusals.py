"""Lines in the log about logins that were refused: so many a second, and no names that nobody has."""

from __future__ import annotations

import logging

from tidings.runtime.clock import Clock
from tidings.runtime.token_buckets import TokenBuckets

# Under the name that it has had.
log = logging.getLogger("webapp.users.service")

# Lines a second, and at once.
RATE, BURST = 1.0, 10


class Refusals:
    """Writes a line for each while there are few, and in the next line how many were left out."""

    def __init__(self, clock: Clock) -> None:
        self._lines: TokenBuckets[str] = TokenBuckets(clock, rate=RATE, burst=BURST, remembered=1)
        self._left_out = 0

    def note(self, username: str | None, address: str, reason: str) -> None:
        """username: `None` unless there is such a user; what else was typed there may be a password."""
        if self._lines.take(""):
            self._left_out += 1
            return
        named = {} if username is None else {"username": username}
        left_out = {"left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        log.info("user.login_refused", extra={**named, "address": address, "reason": reason, **left_out})
