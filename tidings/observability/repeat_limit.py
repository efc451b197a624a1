"""Limit on repeated warnings and errors in the log, so that a failure that lasts does not fill the disk."""

from __future__ import annotations

import dataclasses
import logging
import re
import time
from collections.abc import Callable, Sequence

# Seconds of one period, and lines per period about one event and error.
PERIOD = 60.0
LINES = 10
# Different errors per event that are counted separately in a period; further ones count as one.
ERRORS = 8
# Different events that are counted separately in a period; further ones count as one.
EVENTS = 500
# Name under which further events and errors are counted.
OTHER = "(other)"
# Length of the part of an error's text that distinguishes it, characters.
_LENGTH = 80
# Ids and long numbers, which differ between two lines about one error.
_VARIABLE = re.compile(r"[0-9a-fA-F]{8}[0-9a-fA-F-]*|\d{5,}")


@dataclasses.dataclass(frozen=True, slots=True)
class Suppressed:
    """Lines about one event and error that were not written in a period."""

    event: str
    error: str
    lines: int


class RepeatLimit:
    """Counts lines by event and error. Records below WARNING are not limited."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Create the limit.

        now: returns seconds
        """
        self._now = now
        self._ends = 0.0
        # Lines of this period by event and error.
        self._lines: dict[str, dict[str, int]] = {}

    def admit(self, record: logging.LogRecord) -> bool:
        """Count a record. Returns whether it may be written. `due` must be called before, so that the period is the
        present one.
        """
        if record.levelno < logging.WARNING:
            return True
        event = str(record.msg)
        if event not in self._lines and len(self._lines) >= EVENTS:
            event = OTHER
        errors = self._lines.setdefault(event, {})
        error = _error_of(record)
        if error not in errors and len(errors) >= ERRORS:
            error = OTHER
        errors[error] = errors.get(error, 0) + 1
        return errors[error] <= LINES

    @property
    def is_suppressing(self) -> bool:
        """Return whether lines of this period were suppressed."""
        return any(count > LINES for errors in self._lines.values() for count in errors.values())

    def due(self) -> Sequence[Suppressed]:
        """Begin a new period if the last one is over. Returns what was suppressed in the last one."""
        now = self._now()
        if now < self._ends:
            return ()
        self._ends = now + PERIOD
        return self.take()

    def take(self) -> Sequence[Suppressed]:
        """Return what was suppressed in this period, and count from zero."""
        lines, self._lines = self._lines, {}
        return [
            Suppressed(event, error, count - LINES)
            for event, errors in lines.items()
            for error, count in errors.items()
            if count > LINES
        ]


def _error_of(record: logging.LogRecord) -> str:
    """Return what distinguishes a record's error: the exception's type, or the text in `error` without numbers."""
    if record.exc_info and record.exc_info[0] is not None:
        return record.exc_info[0].__name__
    try:
        text = str(record.__dict__.get("error", ""))
    except Exception:
        # The formatter reports a value that cannot be shown.
        return OTHER
    return _VARIABLE.sub("#", text[: 2 * _LENGTH])[:_LENGTH]
