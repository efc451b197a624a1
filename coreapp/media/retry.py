"""Retry policy of failed downloads: a pure decision."""

from __future__ import annotations

import dataclasses

from coreapp.media.errors import DownloadFailed

ATTEMPTS = 5  # attempts at a file that is downloaded but cannot be read
MAX_AGE = 24 * 3600.0  # seconds that a message waits for its file while the network or the disk fails
LAST_ATTEMPT = 400  # attempts in total, whatever the errors; more than fit into `MAX_AGE`
LONGEST = 300.0  # longest delay between two attempts, seconds


@dataclasses.dataclass(frozen=True, slots=True)
class TryAgain:
    """Try again at the time that was recorded before the attempt."""


@dataclasses.dataclass(frozen=True, slots=True)
class GiveUpDownload:
    """Give up: the webhook gets the message without its file."""

    details: str


def delay(attempt: int) -> float:
    """Return the seconds from the start of an attempt to the next one: 1, 2, 4 … 300.

    attempt: number of the attempt, from 1
    """
    return float(min(2.0 ** (attempt - 1), LONGEST)) if attempt < 20 else LONGEST


def after_failure(error: Exception, attempt: int, age: float) -> TryAgain | GiveUpDownload:
    """Decide on the next step after a failed attempt.

    error: a `DownloadFailed`, or an error of the network or the disk
    attempt: number of the attempt, from 1
    age: seconds since the download was created
    """
    if attempt >= LAST_ATTEMPT:
        return GiveUpDownload(f"the file could not be fetched in {LAST_ATTEMPT} attempts")
    if isinstance(error, DownloadFailed):
        if error.is_final or attempt >= ATTEMPTS:
            return GiveUpDownload(str(error))
        return TryAgain()
    if age >= MAX_AGE:
        return GiveUpDownload("the file could not be fetched within 24 hours")
    return TryAgain()
