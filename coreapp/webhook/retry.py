"""What to do after an attempt: a decision, carried out by the delivery loop."""

from __future__ import annotations

import dataclasses

GIVE_UP_AFTER = 24 * 3600.0  # seconds since the event …
MIN_ATTEMPTS = 10  # … and not before so many: it may have waited for a URL, or for us


@dataclasses.dataclass(frozen=True, slots=True)
class Delivered:
    """The webhook took it."""


@dataclasses.dataclass(frozen=True, slots=True)
class RetryAfter:
    """Try again in so many seconds."""

    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class GiveUp:
    """To the dead-letter list."""


Decision = Delivered | RetryAfter | GiveUp


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """backoff, max_backoff: seconds, from `callback_backoff_delay_ms` and `max_callback_backoff_delay_ms`.

    any_2xx: take every 2xx for success, since some receivers answer 201; otherwise only 200 is.
    """

    backoff: float = 3.0
    max_backoff: float = 900.0
    any_2xx: bool = False
    give_up_after: float = GIVE_UP_AFTER


def decide(status: int | None, attempt: int, age: float, policy: Policy) -> Decision:
    """After attempt number `attempt` (from 1) at an event `age` seconds old; status: of HTTP, `None` without an answer.

    The delay grows by `backoff` with each attempt: n x backoff, at most `max_backoff`.
    """
    if status == 200 or (policy.any_2xx and status is not None and 200 <= status < 300):
        return Delivered()
    if age >= policy.give_up_after and attempt >= MIN_ATTEMPTS:
        return GiveUp()
    return RetryAfter(min(attempt * policy.backoff, policy.max_backoff))
