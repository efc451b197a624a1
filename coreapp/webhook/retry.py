"""Retry policy of callbacks: a decision, carried out by the delivery loop."""

from __future__ import annotations

import dataclasses

GIVE_UP_AFTER = 24 * 3600.0  # seconds since the event before which a callback is not given up
CLOUD_GIVE_UP_AFTER = 7 * 24 * 3600.0  # the same for callbacks in the format of the Cloud API
MIN_ATTEMPTS = 10  # attempts before a callback is given up: it may have waited for a URL, or for us


@dataclasses.dataclass(frozen=True, slots=True)
class Delivered:
    """The webhook accepted the callback."""


@dataclasses.dataclass(frozen=True, slots=True)
class RetryAfter:
    """Try again after a delay."""

    seconds: float  # delay before the next attempt


@dataclasses.dataclass(frozen=True, slots=True)
class GiveUpCallback:
    """Move the callback to the dead letters."""


Decision = Delivered | RetryAfter | GiveUpCallback


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """Parameters of the retry policy."""

    backoff: float = 3.0  # seconds, from `callback_backoff_delay_ms`
    max_backoff: float = 900.0  # seconds, from `max_callback_backoff_delay_ms`
    any_2xx: bool = False  # treat every 2xx as success, since some receivers return 201; otherwise only 200
    give_up_after: float = GIVE_UP_AFTER  # seconds since the event before which a callback is not given up


def is_accepted(status: int | None, policy: Policy) -> bool:
    """Return whether a response means that the webhook has accepted the callback.

    status: HTTP status; None without a response
    """
    return status == 200 or (policy.any_2xx and status is not None and 200 <= status < 300)


def decide(status: int | None, attempt: int, age: float, policy: Policy) -> Decision:
    """Decide on the next step after an attempt. The delay grows by `backoff` with each attempt: n x backoff, at most
    `max_backoff`.

    status: HTTP status; None without a response
    attempt: number of the attempt, from 1
    age: seconds since the event
    """
    if is_accepted(status, policy):
        return Delivered()
    if age >= policy.give_up_after and attempt >= MIN_ATTEMPTS:
        return GiveUpCallback()
    return RetryAfter(min(attempt * policy.backoff, policy.max_backoff))
