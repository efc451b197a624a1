"""The link that opens the console once, printed when an installation starts on this machine."""

from __future__ import annotations

import hmac

from tidings.aio.clock import Clock

# Seconds after the start in which the link may be used.
LIFETIME = 12 * 3600.0


class EntryLink:
    """Key of the link. It works once, and not after `LIFETIME`."""

    def __init__(self, key: str, clock: Clock) -> None:
        """key: part of the link that only its reader knows; empty for no link"""
        self._key = key
        self._clock = clock
        self._ends_at = clock.monotonic() + LIFETIME

    def is_valid(self, given: str) -> bool:
        """Return whether this is the key."""
        is_right = bool(self._key) and hmac.compare_digest(given.encode(), self._key.encode())
        return is_right and self._clock.monotonic() < self._ends_at

    def use(self, given: str) -> bool:
        """Return whether this is the key, which from now on is not."""
        if not self.is_valid(given):
            return False
        self._key = ""
        return True
