"""Progress of a file's transfer to or from the network."""

from __future__ import annotations

import logging
import time

log = logging.getLogger(__name__)

REPORT_SECONDS = 10.0  # seconds between two log lines


class ProgressLog:
    """Logs the progress of a long transfer."""

    def __init__(self, what: str, **about: str) -> None:
        """Create the log of one transfer, whose events are named `what`."""
        self._what = what
        self._about = about
        self._next = time.monotonic() + REPORT_SECONDS

    def __call__(self, done: int, total: int) -> None:
        """Log the progress if it is due.

        done, total: bytes
        """
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + REPORT_SECONDS
            log.info(self._what, extra={"bytes": done, "of": total, **self._about})
