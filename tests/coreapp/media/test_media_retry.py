"""Decisions after a failed download."""

from __future__ import annotations

import pytest

from coreapp.media.errors import DownloadFailed
from coreapp.media.retry import (
    ATTEMPTS,
    LAST_ATTEMPT,
    LONGEST,
    MAX_AGE,
    GiveUpDownload,
    TryAgain,
    after_failure,
    delay,
)
from tidings.client.errors import NetworkUnavailable


def test_the_retry_delay_doubles_up_to_its_limit() -> None:
    assert [delay(n) for n in range(1, 6)] == [1, 2, 4, 8, 16]
    assert delay(50) == delay(5_000) == LONGEST


@pytest.mark.parametrize(
    ("error", "attempt", "age", "expected"),
    [
        (DownloadFailed("gone", is_final=True), 1, 0.0, GiveUpDownload("gone")),
        (DownloadFailed("damaged", is_final=False), ATTEMPTS - 1, 0.0, TryAgain()),
        (DownloadFailed("damaged", is_final=False), ATTEMPTS, 0.0, GiveUpDownload("damaged")),
        (NetworkUnavailable("away"), LAST_ATTEMPT - 1, MAX_AGE - 1, TryAgain()),
        (NetworkUnavailable("away"), 1, MAX_AGE, GiveUpDownload("the file could not be fetched within 24 hours")),
        (OSError("disk"), LAST_ATTEMPT - 1, 0.0, TryAgain()),
        (
            OSError("disk"),
            LAST_ATTEMPT,
            0.0,
            GiveUpDownload(f"the file could not be fetched in {LAST_ATTEMPT} attempts"),
        ),
    ],
)
def test_only_temporary_failures_are_retried(
    error: Exception, attempt: int, age: float, expected: GiveUpDownload | TryAgain
) -> None:
    assert after_failure(error, attempt, age) == expected
