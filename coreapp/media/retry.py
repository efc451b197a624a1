"""What follows from a download that failed: a pure decision."""

from __future__ import annotations

import dataclasses

from coreapp.media.errors import DownloadFailed

ATTEMPTS = 5  # of a file that comes down but cannot be read
PATIENCE = 24 * 3600.0  # seconds that a message waits for its file while the network or the disk does not do its part
LAST_ATTEMPT = 400  # whatever the reason; more than fit into the patience
LONGEST = 300.0  # seconds between two attempts


@dataclasses.dataclass(frozen=True, slots=True)
class TryAgain:
    """At the time that was noted before the attempt."""


@dataclasses.dataclass(frozen=True, slots=True)
class GiveUp:
    """The webhook gets the message without its file."""

    details: str


def delay(attempt: int) -> float:
    """Seconds from the start of an attempt, the first is 1, to the next: 1, 2, 4 … 300."""
    return float(min(2.0 ** (attempt - 1), LONGEST)) if attempt < 20 else LONGEST


def after_failure(error: Exception, attempt: int, age: float) -> TryAgain | GiveUp:
    """error: a `DownloadFailed`, or whatever says that the network or the disk cannot now; age: seconds."""
    if attempt >= LAST_ATTEMPT:
        return GiveUp(f"the file could not be fetched in {LAST_ATTEMPT} attempts")
    if isinstance(error, DownloadFailed):
        if error.is_final or attempt >= ATTEMPTS:
            return GiveUp(str(error))
        return TryAgain()
    if age >= PATIENCE:
        return GiveUp("the file could not be fetched within 24 hours")
    return TryAgain()
