"""A steady load at half of the capacity: memory does not grow, and nothing is lost.

Memory is measured from the message at which every bounded memory of past messages is full. The slope of a process's
resident memory over the messages is found by least squares.
"""

from __future__ import annotations

import array
import asyncio
import dataclasses
import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness import client, database_server
from harness.client import Message, text_message
from tests.load.scene import LoadScene, p99, under_load
from tests.reliability.scenario import FILE
from tests.security.figures import Figures, Form

pytestmark = pytest.mark.whole_system

ROBOTS = 1000
CLIENTS, PEAK_SECONDS = 64, 20.0
# The Coreapp remembers the progress of the latest 100,000 messages, the network the latest 100,000 envelopes.
WARM = 110_000
# Megabytes per 10,000 messages.
LIMIT_MB, STEP = 1.0, 10_000
# Seconds between two measurements, and between two fetches of the webhook's records.
PERIOD = 10.0
# Messages that are sent before the ones before them are checked off, so that the test's own memory is bounded.
SLICE = 50_000
OURS = ("webapp", "coreapp", "network", "robots")


async def find_capacity(scene: LoadScene) -> float:
    """Return the messages per second of clients that wait for each response."""

    def work(until: float) -> Iterator[Message]:
        for index in itertools.count():
            if time.monotonic() >= until:
                return
            yield text_message(scene.numbers[index % ROBOTS], scene.text())

    started = time.monotonic()
    load = await client.closed_loop(scene.business, work(started + PEAK_SECONDS), CLIENTS)
    scene.sent += load.sent
    await scene.settle()
    return len(load.sent) / (time.monotonic() - started)


class Watch:
    """Resident memory of each process over the messages sent so far."""

    def __init__(self, scene: LoadScene) -> None:
        self._scene = scene
        self._processes = {name: psutil.Process(pid) for name, pid in scene.installation.pids().items() if name in OURS}
        self.points: dict[str, list[tuple[int, float]]] = {name: [] for name in self._processes}
        # Messages sent before the slice that is being sent.
        self.sent_before = 0

    async def run(self) -> None:
        """Measure, and take the webhook's records, until cancelled."""
        while True:
            await asyncio.sleep(PERIOD)
            await self._scene.collect()
            for name, process in self._processes.items():
                self.points[name].append((self.sent_before + self._scene.progress, process.memory_info().rss / 1e6))

    def growth(self, name: str, warm: int) -> float:
        """Return the growth of a process in megabytes per `STEP` messages, after `warm` messages."""
        points = [(count, size) for count, size in self.points[name] if count >= warm]
        slope = statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope
        return slope * STEP


async def test_two_hours_at_half_of_the_capacity_cost_no_memory_and_no_message(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    seconds = 60.0 * pytestconfig.getoption("--minutes")
    mariadb = database_server.make(flush_log=1, buffer_pool_mb=256)
    mariadb.start()
    try:
        async with under_load(tmp_path, robots=ROBOTS, mariadb=mariadb) as scene:
            await _soak(scene, seconds, pytestconfig.getoption("--warm-messages"))
    finally:
        mariadb.remove()


async def _soak(scene: LoadScene, seconds: float, warm: int | None) -> None:
    figures = Figures(Form(long=True), FILE)
    figures.test = "tests/soak/test_soak.py"
    rate = await find_capacity(scene) / 2
    figures.record("soak", "half of the capacity", rate, None, "1/s")
    count = int(rate * seconds)
    # A short trial measures its second half, without a limit: memory is still being filled.
    warm = min(WARM, count // 2) if warm is None else warm
    limit = LIMIT_MB if warm >= WARM else None
    watch = Watch(scene)
    watching = asyncio.create_task(watch.run())
    try:
        requests = await _send_all(scene, count, rate, watch)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    await scene.settle()
    for name in watch.points:
        what = f"growth of {name} per {STEP:,} messages after {warm:,} of {count:,}"
        figures.note("soak", what, watch.growth(name, warm), limit, "MB")
    quarter = len(requests.took) // 4
    figures.note("soak", "first quarter, request p99", p99(requests.took[:quarter]), None, "ms")
    figures.note("soak", "last quarter, request p99", p99(requests.took[-quarter:]), None, "ms")
    assert not requests.refused, requests.refused[:10]
    scene.require_balance()
    beyond = [str(figure) for figure in figures.all if not figure.is_within]
    assert not beyond, "\n".join(beyond)


@dataclasses.dataclass(slots=True)
class Requests:
    """Requests of the whole run."""

    # Seconds of each accepted one, in order.
    took: array.array[float] = dataclasses.field(default_factory=lambda: array.array("d"))
    # HTTP statuses of the others.
    refused: list[int | None] = dataclasses.field(default_factory=list)


async def _send_all(scene: LoadScene, count: int, rate: float, watch: Watch) -> Requests:
    """Send `count` messages at the rate, and check off each slice while the next one is sent."""
    requests = Requests()
    checking: asyncio.Task[None] | None = None
    for start in range(0, count, SLICE):
        watch.sent_before = start
        numbers = [scene.numbers[index % ROBOTS] for index in range(start, min(start + SLICE, count))]
        sent = await scene.send(numbers, rate)
        if checking is not None:
            await checking
        for one in sent:
            if one.request.accepted:
                requests.took.append(one.took)
            else:
                requests.refused.append(one.request.status)
        checking = asyncio.create_task(scene.check_off(sent))
    if checking is not None:
        await checking
    return requests
