"""The pace of a number: rate, posts in flight, back-off, stop."""

from __future__ import annotations

import math

import pytest

from coreapp.graph_api.pace import UpstreamPace, backoff
from tests.manual_clock import ManualClock


def test_the_back_off_is_four_to_the_power_of_the_failures_up_to_64_seconds() -> None:
    assert [backoff(failures) for failures in (1, 2, 3, 4, 5, 100)] == [1.0, 4.0, 16.0, 64.0, 64.0, 64.0]


def test_posts_in_flight_are_bounded_and_a_release_wakes_the_shards() -> None:
    pace, woken = UpstreamPace(ManualClock(), limit=2), []
    end = pace.on_permit(lambda: woken.append("a"))
    pace.on_permit(lambda: woken.append("b"))
    assert (pace.admit(), pace.admit(), pace.admit()) == (0.0, 0.0, math.inf)
    pace.release()
    assert woken == ["a", "b"]
    end()
    pace.release()
    assert woken == ["a", "b", "b"]
    assert pace.in_flight == 0


def test_posts_are_admitted_at_the_rate() -> None:
    clock = ManualClock()
    pace = UpstreamPace(clock, limit=10_000)
    pace.set_rate(80.0)
    sent = 0
    for _ in range(10 * 1000):
        while pace.admit() == 0.0:
            sent += 1
        clock.advance(0.001)
    assert 800 <= sent <= 816


def test_a_refunded_permit_can_be_taken_again_and_wakes_nobody() -> None:
    pace, woken = UpstreamPace(ManualClock(), limit=1), []
    pace.on_permit(lambda: woken.append("a"))
    pace.set_rate(10.0)
    assert pace.admit() == 0.0
    pace.refund()
    assert pace.admit() == 0.0
    assert pace.admit() == math.inf
    assert woken == []
    pace.release()
    assert pace.admit() == pytest.approx(0.1)


def test_after_a_failure_one_post_at_a_time_is_permitted_until_one_succeeds() -> None:
    clock = ManualClock()
    pace = UpstreamPace(clock, limit=256)
    assert pace.admit() == 0.0
    assert pace.delayed() == 1.0
    # Others that were in flight do not lengthen the back-off.
    assert pace.delayed() == 1.0
    assert pace.admit() == pytest.approx(1.0)
    pace.release()
    clock.advance(1.0)
    assert pace.admit() == 0.0
    assert pace.admit() == math.inf
    assert pace.delayed() == 4.0
    pace.release()
    clock.advance(4.0)
    assert pace.admit() == 0.0
    assert not pace.succeeded()
    assert pace.admit() == 0.0


def test_the_cloud_api_may_demand_a_longer_wait() -> None:
    pace = UpstreamPace(ManualClock(), limit=1)
    assert pace.delayed(30.0) == 30.0
    assert pace.admit() == pytest.approx(30.0)


def test_a_stopped_number_is_tried_every_60_seconds_and_at_once_with_new_credentials() -> None:
    clock = ManualClock()
    pace = UpstreamPace(clock, limit=256)
    assert pace.stop("token")
    assert not pace.stop("token")
    assert pace.fault == "token"
    assert pace.admit() == pytest.approx(60.0)
    clock.advance(60.0)
    assert pace.admit() == 0.0
    assert pace.admit() == math.inf
    assert not pace.stop("token")
    pace.release()
    pace.resume()
    assert pace.admit() == 0.0
    assert pace.succeeded()
    assert pace.fault == ""
