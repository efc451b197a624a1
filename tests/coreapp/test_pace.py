"""The pace of left-over work follows the event loop."""

from __future__ import annotations

from coreapp.pace import Pace


def test_the_rate_grows_by_half_per_second_and_halves_when_the_loop_is_late() -> None:
    pace = Pace(200.0, 50.0, 1_000.0)
    for _ in range(20):
        pace.portion(0.001)
    assert 290 < pace.rate < 310
    earlier = pace.rate
    pace.portion(0.02)
    assert pace.rate == earlier / 2


def test_the_rate_stays_within_its_limits() -> None:
    pace = Pace(60.0, 50.0, 100.0)
    for _ in range(10):
        pace.portion(1.0)
    assert pace.rate == 50.0
    for _ in range(100):
        pace.portion(0.0)
    assert pace.rate == 100.0


def test_fractions_of_items_are_kept_for_later_ticks() -> None:
    pace = Pace(30.0, 30.0, 30.0)
    assert [pace.portion(0.0) for _ in range(4)] == [1, 2, 1, 2]
