"""One row that kills the Coreapp at every attempt: it is quarantined after three, and everything else is served."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import polling, processes
from harness.client import Business
from harness.installation import Installation
from harness.sink_process import SinkProcess
from tests.reliability.restarts import restarted
from tests.reliability.scenario import FILE
from tests.security.figures import Figures, Form

pytestmark = pytest.mark.whole_system

READERS = [f"1555011{index:04d}" for index in range(20)]
KILLER, ECHO = "15550110020", "15550140000"
ENVIRONMENT = {
    "TIDINGS_ROBOTS_KINDS": "11,14",
    "TIDINGS_ROBOTS_PER_KIND": "21",
    "TIDINGS_LEASE_SECONDS": "3",
    "TIDINGS_MESSAGES_RATE": "0",
}
SECONDS = 120.0


def queue(installation: Installation, *words: str) -> Any:
    """Run `tidings queue … --json` and return its object."""
    environment = {**processes.inherited(), **installation.common}
    command = [sys.executable, "-m", "cli.main", "queue", *words, "--json"]
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)


class Statuses:
    """Statuses and inbound messages that the webhook has received."""

    def __init__(self, sink: SinkProcess) -> None:
        self._sink = sink
        self.read: set[str] = set()
        self.inbound: list[str] = []

    async def until(self, message_ids: set[str], inbound: int = 0) -> None:
        """Wait until all of these messages are read and so many messages of recipients have arrived."""

        async def arrived() -> bool:
            records = await self._sink.take()
            self.read.update(record.message_id for record in records if record.status == "read")
            self.inbound += [record.text for record in records if record.status == "inbound"]
            return message_ids <= self.read and len(self.inbound) >= inbound

        await polling.until(arrived, seconds=SECONDS)


async def send(business: Business, number: str, text: str) -> str:
    """Send a message, and repeat it while it is refused. Returns its id."""
    body = {"to": number, "type": "text", "text": {"body": text}}
    async with asyncio.timeout(SECONDS):
        while True:
            status, response = await business.call("POST", "/v1/messages", body)
            if 200 <= status < 300:
                return str(response["messages"][0]["id"])
            await asyncio.sleep(0.1)


async def test_a_row_that_kills_the_process_is_quarantined_after_3_attempts(tmp_path: Path) -> None:
    figures = _figures()
    async with (
        Installation(tmp_path, None, ENVIRONMENT) as installation,
        SinkProcess(tmp_path, installation.webhook_secret, verify_every=1) as sink,
    ):
        await installation.start()
        business = await installation.business()
        await business.set_webhook(sink.url)
        await business.check_contacts([*READERS, KILLER, ECHO])
        statuses = Statuses(sink)
        await statuses.until({await send(business, READERS[0], "before")})
        coreapp = installation.processes["coreapp"]

        await coreapp.stop()
        kills = {"TIDINGS_CRASH_AT": f"item-in-progress@{KILLER}"}
        async with restarted(coreapp, kills) as restarts:
            killer = await send(business, KILLER, "kills")
            others = {await send(business, number, f"beside {number}") for number in READERS}
            await statuses.until(others)
            await _until_quarantined(installation, killer)
            # Nothing is tried again: what is sent from here on is served by the process that runs now.
            alive = coreapp.pid
            await statuses.until({await send(business, number, f"after {number}") for number in READERS})
            assert coreapp.pid == alive
        # After a death before the response, `send` may repeat the request as another message.
        rows = queue(installation, "quarantine")["items"]
        attempts = {row["id"]: row["attempts"] for row in rows}
        figures.record("a job kills the Coreapp", "deaths for one job", max(attempts.values()), 3)
        assert {(row["kind"], row["recipient"]) for row in rows if row["attempts"] == 3} == {("job", KILLER)}
        assert attempts[killer] == 3
        assert sum(attempts.values()) == restarts.deaths
        metrics = installation.metrics()["coreapp"]
        quarantined = sum(count == 3 for count in attempts.values())
        assert f'tidings_quarantined_items{{number="15550000000",shard="0"}} {quarantined}.0' in metrics
        assert "item.quarantined" in coreapp.log_path.read_text()

        await coreapp.stop()
        assert queue(installation, "release", "--id", killer) == {"released": 1}
        await coreapp.start()
        await statuses.until({killer})


async def test_a_delivery_that_kills_the_process_is_quarantined_after_3_attempts(tmp_path: Path) -> None:
    async with (
        Installation(tmp_path, None, ENVIRONMENT) as installation,
        SinkProcess(tmp_path, installation.webhook_secret, verify_every=1) as sink,
    ):
        await installation.start()
        business = await installation.business()
        await business.set_webhook(sink.url)
        await business.check_contacts([*READERS, ECHO])
        statuses = Statuses(sink)
        await statuses.until({await send(business, ECHO, "before"), await send(business, READERS[0], "x")}, inbound=1)
        coreapp, robots = installation.processes["coreapp"], installation.processes["robots"]

        robots.pause()
        try:
            await send(business, ECHO, "comes back")
            await polling.until(lambda: not installation.read_value("business", "SELECT COUNT(*) FROM jobs"))
            await coreapp.stop()
        finally:
            robots.resume()
        kills = {"TIDINGS_CRASH_AT": f"item-in-progress@{ECHO}"}
        async with restarted(coreapp, kills) as restarts:
            # Two receipts, and the text.
            await polling.until(lambda: len(_quarantined(installation)) == 3, seconds=SECONDS)
            others = {await send(business, number, f"beside {number}") for number in READERS}
            await statuses.until(others)
        _figures().record("a delivery kills the Coreapp", "deaths for three deliveries", restarts.deaths, 9)
        rows = _quarantined(installation)
        assert [(row["kind"], row["recipient"], row["attempts"]) for row in rows] == [("delivery", ECHO, 3)] * 3
        # The network has handed them over.
        waiting = "SELECT COUNT(*) FROM envelopes WHERE recipient = '15550000000'"
        await polling.until(lambda: not installation.read_value("network", waiting))

        await coreapp.stop()
        assert queue(installation, "release") == {"released": 3}
        await coreapp.start()
        await statuses.until(set(), inbound=2)
        assert statuses.inbound[1].endswith("comes back")


def _figures() -> Figures:
    figures = Figures(Form(long=True), FILE)
    figures.test = "tests/reliability/test_quarantine.py"
    return figures


def _quarantined(installation: Installation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = queue(installation, "quarantine", "--status", "quarantined")["items"]
    return found


async def _until_quarantined(installation: Installation, message_id: str) -> None:
    """Wait until this job, and every other one to `KILLER`, is quarantined."""
    counted = f"SELECT attempts FROM quarantine WHERE id = '{message_id}'"
    others = (
        f"SELECT COUNT(*) FROM jobs WHERE peer = '{KILLER}'"
        " AND id NOT IN (SELECT id FROM quarantine WHERE attempts >= 3)"
    )
    await polling.until(
        lambda: installation.read_value("business", counted) == 3 and not installation.read_value("business", others),
        seconds=SECONDS,
    )
