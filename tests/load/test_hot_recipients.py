"""One recipient in a hundred receives half of all messages; the others' messages are hardly later."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from harness.client import Sent
from tests.load.scene import figures_of, p99, took, under_load

pytestmark = pytest.mark.whole_system

ROBOTS = 1000
HOT = 10
RATE = 150.0
# Both kinds of load alternate, so that changes of the machine meet both.
ROUNDS, MINUTES = 4, 4.0


def to_others(sent: Collection[Sent], hot: Collection[str]) -> list[Sent]:
    return [one for one in sent if one.request.number not in hot]


async def test_half_of_all_messages_for_1_percent_of_the_recipients_delays_the_others_by_20_percent_at_most(
    tmp_path: Path, minutes: float | None
) -> None:
    seconds = 60.0 * (minutes or MINUTES) / (2 * ROUNDS)
    even: list[Sent] = []
    uneven: list[Sent] = []
    async with under_load(tmp_path, robots=ROBOTS) as scene:
        hot, rest = scene.numbers[:HOT], scene.numbers[HOT:]

        def choose_unevenly() -> str:
            return scene.rng.choice(hot if scene.rng.random() < 0.5 else rest)

        for _ in range(ROUNDS):
            even += to_others(await scene.send_for(seconds, RATE, lambda: scene.rng.choice(rest)), hot)
            await scene.settle()
            uneven += to_others(await scene.send_for(seconds, RATE, choose_unevenly), hot)
            await scene.settle()
        scene.require_balance()
        figures = figures_of("test_hot_recipients.py")
        for what, before, after in (
            ("request", took(even), took(uneven)),
            ("request to last callback", scene.whole_delays(even), scene.whole_delays(uneven)),
        ):
            baseline = p99(before)
            figures.note("even load", f"{what}, p99", baseline, None, "ms")
            figures.note("1 % receive 50 %", f"{what} of the others, p99", p99(after), baseline * 1.2, "ms")
        beyond = [str(figure) for figure in figures.all if not figure.is_within]
        assert not beyond, "\n".join(beyond)
