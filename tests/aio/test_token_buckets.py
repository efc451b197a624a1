"""Token buckets: a burst at once, then a rate, independently for each key."""

from __future__ import annotations

import pytest

from tests.manual_clock import ManualClock
from tidings.aio.token_buckets import RateLimit, TokenBuckets


def test_a_burst_passes_at_once_and_then_the_rate_applies() -> None:
    clock = ManualClock()
    buckets: TokenBuckets[str] = TokenBuckets(clock, rate=2.0, burst=3, remembered=10)
    assert [buckets.take("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert buckets.take("a") == pytest.approx(0.5)
    assert buckets.take("b") == 0.0, "another key has a bucket of its own"
    clock.advance(0.5)
    assert buckets.take("a") == 0.0
    assert buckets.take("a") == pytest.approx(0.5), "what was refused has taken nothing"


def test_a_new_bucket_holds_the_full_burst_at_any_time() -> None:
    clock = ManualClock()
    buckets: TokenBuckets[int] = TokenBuckets(clock, rate=0.001, burst=4, remembered=10)
    for key in range(1000):
        clock.advance(7.123)
        assert [buckets.take(key) for _ in range(4)] == [0.0] * 4
        assert buckets.take(key) == pytest.approx(1000)


def test_a_cost_above_the_burst_passes_when_the_bucket_is_full() -> None:
    clock = ManualClock()
    buckets: TokenBuckets[str] = TokenBuckets(clock, rate=1.0, burst=10, remembered=10)
    assert buckets.take("a", 30) == 0.0
    assert buckets.take("a", 1) == pytest.approx(21.0), "and is paid for"


def test_a_rate_of_zero_is_no_limit() -> None:
    buckets: TokenBuckets[str] = TokenBuckets(ManualClock(), rate=0.0, burst=1, remembered=10)
    assert [buckets.take("a", 1000) for _ in range(100)] == [0.0] * 100
    assert len(buckets) == 0


def test_learned_consumption_of_others_counts_and_never_decreases() -> None:
    buckets: TokenBuckets[str] = TokenBuckets(ManualClock(), rate=0.5, burst=3, remembered=10)
    buckets.learn("a", 4)
    assert buckets.take("a") == 0.0
    assert buckets.take("a") == pytest.approx(2.0)
    buckets.learn("a", 0)
    assert buckets.take("a") == pytest.approx(2.0)


def test_the_number_of_remembered_keys_is_limited() -> None:
    buckets: TokenBuckets[int] = TokenBuckets(ManualClock(), rate=1.0, burst=1, remembered=5)
    for key in range(20):
        buckets.take(key)
    assert len(buckets) == 5


def test_refunded_buckets_are_removed() -> None:
    clock = ManualClock()
    buckets: TokenBuckets[str] = TokenBuckets(clock, rate=2.0, burst=3, remembered=10)
    for _ in range(3):
        buckets.take("a")
    buckets.add("a", -2)
    assert buckets.wait("a", 3) == pytest.approx(0.5)
    clock.advance(0.1)
    buckets.add("a", -1)
    assert len(buckets) == 0
    assert buckets.wait("a", 3) == 0.0


def test_a_rate_keeps_its_state_in_one_number_of_any_unit() -> None:
    rate, now = RateLimit(interval=50, burst=3), 1_000
    full_at = 0
    for _ in range(3):
        assert rate.wait(full_at, now) == 0
        full_at = rate.consume(full_at, now)
    assert full_at == 1_150
    assert rate.wait(full_at, now) == 50
    assert rate.wait(full_at, now, 3) == 150
    assert rate.wait(full_at, now + 50) == 0
    assert rate.consume(full_at, now, -1) == 1_100


def test_a_rate_grants_credit_and_states_the_time_until_it_is_repaid() -> None:
    rate = RateLimit(interval=0.5, burst=2.0)
    full_at = rate.consume(0.0, 10.0, 5.0)
    assert rate.wait(full_at, 10.0, 0.0) == 1.5
    assert rate.wait(full_at, 11.5, 0.0) == 0


def test_a_stored_state_beyond_an_empty_bucket_counts_as_empty() -> None:
    rate = RateLimit(interval=50, burst=3)
    assert rate.bound(9_999, 1_000) == 1_150
    assert rate.bound(1_100, 1_000) == 1_100
