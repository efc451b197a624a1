"""Size of the logs: per message, and while every request fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.load.scene import LoadScene, figures_of, under_load

pytestmark = pytest.mark.whole_system

ROBOTS = 200
MESSAGES = 5_000
RATE = 100.0
# With the Coreapp dead, every request fails.
MINUTES, FAILING_RATE = 3.0, 133.0


def sizes(scene: LoadScene) -> dict[str, int]:
    """Return the bytes of each process's log."""
    return {name: process.log_path.stat().st_size for name, process in scene.installation.processes.items()}


def growth(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    return sum(after.values()) - sum(before.values())


@pytest.mark.parametrize("level", ["info", "debug"])
async def test_a_message_costs_2_kb_of_logs_at_most(level: str, tmp_path: Path) -> None:
    figures = figures_of("test_log_volume.py")
    async with under_load(tmp_path, robots=ROBOTS, environment={"TIDINGS_LOG_LEVEL": level}) as scene:
        before = sizes(scene)
        await scene.send([scene.numbers[index % ROBOTS] for index in range(MESSAGES)], RATE)
        await scene.settle()
        bytes_each = growth(before, sizes(scene)) / MESSAGES
    figures.record(f"level {level}", "log of all processes per message", bytes_each, 2048.0, "bytes")


async def test_while_every_request_fails_the_log_stays_small(tmp_path: Path, minutes: float | None) -> None:
    seconds = 60.0 * (minutes or MINUTES)
    figures = figures_of("test_log_volume.py")
    async with under_load(tmp_path, robots=ROBOTS) as scene:
        await scene.installation.processes["coreapp"].kill9()
        webapp = scene.installation.processes["webapp"].log_path
        before, lines = sizes(scene), len(webapp.read_text().splitlines())
        failed = await scene.send_for(seconds, FAILING_RATE, lambda: scene.rng.choice(scene.numbers))
        assert not any(one.request.accepted for one in failed)
        bytes_each_minute = growth(before, sizes(scene)) / seconds * 60
        written = webapp.read_text().splitlines()[lines:]
        await scene.installation.processes["coreapp"].start()
    periods = seconds / 60 + 1
    # Ten lines per event and error, of nine errors at most, and a line for each with the number of the others.
    count = sum("http.failed" in line for line in written)
    figures.record("every request fails", "http.failed lines per minute", count / periods, 99.0, "1/min")
    figures.record("every request fails", "log of all processes per minute", bytes_each_minute, 100_000.0, "bytes")
    told = [line for line in written if "log.lines_suppressed" in line and "suppressed=http.failed" in line]
    suppressed = sum(int(line.partition("lines=")[2].split()[0]) for line in told)
    shown = sum("http.failed" in line and "log.lines_suppressed" not in line for line in written)
    # The last minute may not be over.
    assert shown + suppressed >= len(failed) * (1 - 60 / seconds) * 0.9
