"""Alerts about an outage, timed on a real Prometheus with the configured intervals: firing within 2 minutes of its
start, cleared within 5 minutes of its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from harness import client, database_server, polling, prometheus
from harness.client import Business
from harness.installation import Installation
from harness.prometheus import Prometheus
from harness.sink_process import SinkProcess
from tests.reliability.scenario import FILE
from tests.security.figures import Figures, Form

pytestmark = pytest.mark.whole_system

FIRING, CLEARED = 120.0, 300.0
KEY = "a key for the monitoring of tests"
NUMBERS = [f"1555011{index:04d}" for index in range(50)]
RATE = 5.0
ENVIRONMENT = {
    "WA_API_KEY": KEY,
    "TIDINGS_MESSAGES_RATE": "0",
    "TIDINGS_ROBOTS_KINDS": "11",
    "TIDINGS_ROBOTS_PER_KIND": "50",
    "TIDINGS_LEASE_SECONDS": "3",
    # So that messages are refused soon after the network is gone.
    "TIDINGS_JOB_QUEUE_LIMIT": "50",
}
# By outage: alerts that must fire.
ALERTS = {
    "network": {"TidingsProcessDown", "TidingsDisconnected", "TidingsMessagesRefused"},
    "coreapp": {"TidingsProcessDown", "TidingsShardWithoutOwner"},
    # A database that hangs: the Coreapp stays the owner of its shard.
    "database": {"TidingsDatabaseAway", "TidingsDisconnected"},
}


@contextlib.asynccontextmanager
async def sending(business: Business) -> AsyncIterator[None]:
    """Send a few messages per second until the block ends, whatever the responses are."""
    is_over = False

    def work() -> Iterator[tuple[str, str]]:
        for index in itertools.count():
            if is_over:
                return
            yield NUMBERS[index % len(NUMBERS)], f"message {index}"

    loading = asyncio.create_task(client.open_loop(business, work(), RATE))
    try:
        yield
    finally:
        is_over = True
        await loading


class Alerts:
    """Alerts of a Prometheus."""

    def __init__(self, server: Prometheus) -> None:
        self._server = server

    async def firing(self) -> set[str]:
        found = await self._server.query('ALERTS{alertstate="firing"}')
        return {one["metric"]["alertname"] for one in found}

    async def until_scraped(self, times: int) -> None:
        """Wait until every process has been scraped so often, so that Prometheus knows the state before the outage."""

        async def are_known() -> bool:
            found = await self._server.query("count_over_time(up[5m]) and up == 1")
            return len(found) == 3 and all(float(one["value"][1]) >= times for one in found)

        await polling.until(are_known, seconds=180, pause=1.0)

    async def until(self, holds: Callable[[set[str]], bool], seconds: float) -> float:
        """Wait until the firing alerts are as wanted. Returns the seconds, which may exceed `seconds`."""
        started = time.monotonic()

        async def are_wanted() -> bool:
            return holds(await self.firing())

        # Beyond the limit, so that the figure shows by how much it was missed.
        await polling.until(are_wanted, seconds=3 * seconds, pause=1.0)
        return time.monotonic() - started


@pytest.mark.parametrize("outage", ALERTS)
async def test_alerts_fire_within_2_minutes_and_clear_within_5(outage: str, tmp_path: Path) -> None:
    mariadb = database_server.make(flush_log=1)
    mariadb.start()
    try:
        async with (
            Installation(tmp_path, mariadb, ENVIRONMENT) as installation,
            SinkProcess(tmp_path, installation.webhook_secret) as sink,
        ):
            await installation.start()
            business = await installation.business()
            await business.set_webhook(sink.url)
            await business.check_contacts(NUMBERS)

            async def begin() -> None:
                if outage == "database":
                    mariadb.pause()
                else:
                    await installation.processes[outage].kill9()

            async def end() -> None:
                if outage == "database":
                    mariadb.resume()
                else:
                    await installation.processes[outage].start()

            targets = {
                "webapp": [f"127.0.0.1:{installation.api_port}"],
                "coreapp": [f"127.0.0.1:{installation.metrics_ports['coreapp']}"],
                "network": [installation.common["TIDINGS_NETWORK_HTTP_ADDRESS"]],
            }
            configuration = prometheus.prepare(tmp_path, KEY, targets, interval=None)
            async with Prometheus(configuration, tmp_path / "prometheus.log") as server, sending(business):
                await _time(Alerts(server), outage, begin, end)
    finally:
        mariadb.resume()
        mariadb.remove()


async def _time(
    alerts: Alerts, outage: str, begin: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]]
) -> None:
    figures = Figures(Form(long=True), FILE)
    figures.test = "tests/monitoring/test_alert_times.py"
    await alerts.until_scraped(3)
    assert not await alerts.firing()
    expected = ALERTS[outage]
    await begin()
    fired = await alerts.until(lambda firing: expected <= firing, FIRING)
    await end()
    cleared = await alerts.until(lambda firing: not firing, CLEARED)
    figures.record(f"{outage} away", f"{', '.join(sorted(expected))} firing after", fired, FIRING, "s")
    figures.record(f"{outage} back", "all alerts cleared after", cleared, CLEARED, "s")
