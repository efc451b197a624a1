"""Limit per key and period: each key has a number of events per period, and again in the next."""

from __future__ import annotations

from tests.manual_clock import ManualClock
from tidings.aio.use_limit import UseLimit


def test_each_key_has_its_own_limit_and_it_resets_after_the_period() -> None:
    clock = ManualClock()
    allowance: UseLimit[str] = UseLimit(clock, limit=2, period=60.0, remembered=10)
    assert [allowance.take("a") for _ in range(3)] == [True, True, False]
    assert allowance.take("b")
    assert (allowance.used("a"), allowance.used("b"), allowance.used("c")) == (2, 1, 0)
    clock.advance(60.0)
    assert allowance.used("a") == 0
    assert allowance.take("a")


def test_an_evicted_key_starts_with_a_full_limit() -> None:
    allowance: UseLimit[int] = UseLimit(ManualClock(), limit=1, period=60.0, remembered=2)
    assert [allowance.take(n) for n in (1, 2, 3, 1)] == [True] * 4
    assert not allowance.take(3)
