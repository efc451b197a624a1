"""How far a file has come on its way to the network, or from it."""

from __future__ import annotations

import logging
import time

log = logging.getLogger(__name__)

REPORT_SECONDS = 10.0


class ProgressLog:
    """Log lines of a transfer that takes long."""

    def __init__(self, what: str, **about: str) -> None:
        """what: names the log line."""
        self._what = what
        self._about = about
        self._next = time.monotonic() + REPORT_SECONDS

    def __call__(self, done: int, total: int) -> None:
        """done, total: bytes."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + REPORT_SECONDS
            log.info(self._what, extra={"bytes": done, "of": total, **self._about})
