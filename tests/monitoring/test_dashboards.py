"""Real Prometheus on a real run: every query of every panel and alert returns data."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harness import client, polling, prometheus
from harness.client import Business
from harness.installation import Installation
from harness.mariadb import MariaDB
from harness.prometheus import Prometheus
from harness.sink_process import SinkProcess
from tests.monitoring import files, picture

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "a key for the monitoring of tests"
# Recipients that read at once, and recipients that reply.
NUMBERS = [f"15550{kind}{n:04}" for kind in ("11", "14") for n in range(10)]
RATE = 40.0
# Small limits, so that everything that an alert measures occurs: full queues, rate limits, an unavailable Coreapp.
ENVIRONMENT = {
    "WA_API_KEY": KEY,
    "TIDINGS_API_TLS": "1",
    "TIDINGS_ROBOTS_KINDS": "11,14",
    "TIDINGS_ROBOTS_PER_KIND": "10",
    "TIDINGS_CALLBACK_QUEUE_LIMIT": "1500",
    "TIDINGS_COREAPP_PATIENCE_S": "0.5",
    "TIDINGS_LEASE_SECONDS": "2",
}


@dataclasses.dataclass
class Run:
    """Finished run, and the Prometheus that has scraped it."""

    prometheus: Prometheus
    started: float  # Unix seconds
    ended: float  # Unix seconds
    fired: set[str]

    async def series(self, expression: str, *, step: float = 1.0) -> Sequence[dict[str, Any]]:
        """Return the series of an expression that have a number at any time of the run."""
        found = await self.prometheus.query_range(expression, self.started, self.ended, step=step)
        return [one for one in found if any(math.isfinite(float(value)) for _, value in one["values"])]


def trusting() -> ssl.SSLContext:
    """Return a context that accepts the Webapp's self-signed certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def load(business: Business, seconds: float, rate: float = RATE) -> None:
    """Send messages to all recipients in round robin, whatever the responses are."""
    work = [(NUMBERS[n % len(NUMBERS)], f"message {n}") for n in range(int(seconds * rate))]
    await client.open_loop(business, work, rate)


async def guess(unauthenticated: Business, times: int) -> None:
    """Send wrong passwords, more of them than the Webapp checks."""
    for _ in range(times):
        status, _ = await unauthenticated.call("POST", "/v1/users/login", {}, authorization=b"Basic d3Jvbmc6d3Jvbmc=")
        assert status in (401, 429)


async def until_fired(server: Prometheus, names: set[str]) -> set[str]:
    """Wait until these alerts are pending or firing, and return all that are."""
    found: set[str] = set()

    async def all_fired() -> bool:
        found.clear()
        found.update(one["metric"]["alertname"] for one in await server.query("ALERTS"))
        return names <= found

    try:
        await polling.until(all_fired, seconds=60, pause=0.5)
    except TimeoutError:
        pytest.fail(f"of {names}, these alerts were neither pending nor firing within 60 s: {names - found}")
    return found


async def play(installation: Installation, sink: SinkProcess, server: Prometheus) -> set[str]:
    """Run a load, a burst, a webhook that fails until the queue is full, guesses, and a kill of the Coreapp.

    Returns the alerts that fired.
    """
    tls = trusting()
    business = Business(installation.api_port, tls=tls)
    await business.log_in()
    await business.set_webhook(sink.url)
    await business.check_contacts(NUMBERS)
    await load(business, 20)
    await load(business, 1, rate=400)
    await sink.respond_with(503)
    await load(business, 25)
    fired = await until_fired(server, {"TidingsMessagesRefused", "TidingsCallbacksFailing"})
    await sink.respond_with(200)
    await guess(Business(installation.api_port, tls=tls), 20)
    await load(business, 10)
    await installation.processes["coreapp"].kill9()
    await load(business, 3, rate=5)
    fired |= await until_fired(server, {"TidingsProcessDown", "TidingsShardWithoutOwner"})
    await installation.start(["coreapp"])
    await load(business, 15)
    return fired


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("monitoring")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(directory: Path) -> AsyncIterator[Run]:
    database = MariaDB()
    database.start()
    try:
        async with Installation(directory, database, ENVIRONMENT) as installation:
            targets = {
                "webapp": [f"127.0.0.1:{installation.api_port}"],
                "coreapp": [f"127.0.0.1:{installation.metrics_ports['coreapp']}"],
                "network": [installation.common["TIDINGS_NETWORK_HTTP_ADDRESS"]],
            }
            prepared = prometheus.prepare(directory, KEY, targets, https=["webapp"])
            async with (
                SinkProcess(directory, installation.webhook_secret) as sink,
                Prometheus(prepared, directory / "prometheus.log") as server,
            ):
                await installation.start()
                started = time.time()
                fired = await play(installation, sink, server)
                yield Run(server, started, time.time(), fired)
    finally:
        database.remove()


@pytest.mark.parametrize("panel", files.panels(), ids=lambda panel: f"{panel.dashboard}: {panel.title}")
async def test_every_panel_query_returns_data(run: Run, panel: files.Panel) -> None:
    for query, _ in panel.queries:
        assert await run.series(query), query


@pytest.mark.parametrize("alert", files.alerts(), ids=lambda alert: alert.name)
async def test_every_alert_expression_returns_data(run: Run, alert: files.Alert) -> None:
    assert await run.series(alert.measured), alert.measured


async def test_faults_in_the_installation_fire_the_expected_alerts(run: Run) -> None:
    expected = {"TidingsMessagesRefused", "TidingsCallbacksFailing", "TidingsProcessDown", "TidingsShardWithoutOwner"}
    assert expected <= run.fired
    quiet = {"TidingsMediaDamaged", "TidingsCallbacksGivenUp", "TidingsShardWithTwoOwners", "TidingsDatabaseAway"}
    assert not quiet & run.fired


async def test_a_picture_of_the_panels_is_drawn_from_prometheus_data(run: Run, directory: Path) -> None:
    target = Path(os.environ.get("PICTURE") or directory / "dashboards.png")
    await picture.draw(target, files.panels(), run.prometheus, run.started, run.ended)
    assert await asyncio.to_thread(lambda: target.stat().st_size) > 100_000
