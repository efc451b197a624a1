"""Deletion of 1,000,000 expired messages while others are sent."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from harness import database_server, polling
from harness.client import Sent
from tests.load.scene import LoadScene, figures_of, p99, took, under_load

pytestmark = pytest.mark.whole_system

ROWS = 1_000_000
PAGE = 10_000
ROBOTS = 500
RATE = 100.0
BASELINE_SECONDS = 120.0
# Deleted at 1,000 rows per second or more.
LIMIT_SECONDS = 1000.0
OLD_MS = 1_600_000_000_000
# Reads one row, so that asking costs the measured load nothing.
IS_ANY_LEFT = "SELECT EXISTS (SELECT 1 FROM messages WHERE id LIKE 'expired-%')"


def insert(scene: LoadScene, status: int) -> None:
    """Insert messages that were read long ago."""
    for start in range(0, ROWS, PAGE):
        values = ",".join(
            f"('expired-{index:07d}','15550000000',0,'{scene.numbers[index % ROBOTS]}','text',{status},{OLD_MS},'','')"
            for index in range(start, start + PAGE)
        )
        columns = "id, account, shard, peer, kind, status, created_at, request_id, category"
        scene.installation.change("business", [f"INSERT INTO messages ({columns}) VALUES {values}"])


async def test_1_000_000_expired_messages_are_deleted_and_delay_requests_by_10_percent_at_most(
    tmp_path: Path,
) -> None:
    mariadb = database_server.make(flush_log=1, buffer_pool_mb=512)
    mariadb.start()
    try:
        async with under_load(tmp_path, robots=ROBOTS, mariadb=mariadb) as scene:
            read = scene.installation.read_value("business", "SELECT MAX(status) FROM messages WHERE peer <> ''")
            await asyncio.to_thread(insert, scene, read)
            await _measure(scene)
    finally:
        mariadb.remove()


async def _measure(scene: LoadScene) -> None:
    # The first periodic deletion would fall into the baseline.
    await scene.business.check_call(
        "PATCH", "/v1/settings/application", {"garbagecollector_enable": {"messages": False}}
    )
    figures = figures_of("test_retention.py")

    def choose() -> str:
        return scene.rng.choice(scene.numbers)

    before = await scene.send_for(BASELINE_SECONDS, RATE, choose)
    await scene.settle()
    started = time.monotonic()
    await scene.business.check_call("PUT", "/v1/services/message/gc")
    async with scene.sending(RATE, choose) as during:
        await polling.until(
            lambda: not scene.installation.read_value("business", IS_ANY_LEFT), seconds=LIMIT_SECONDS, pause=2.0
        )
        seconds = time.monotonic() - started
    await scene.settle()
    scene.require_balance()
    figures.record("1,000,000 expired messages", "deleted after", seconds, LIMIT_SECONDS, "s")
    for what, earlier, later in (
        ("request", took(before), took(during)),
        ("request to last callback", scene.whole_delays(before), scene.whole_delays(during)),
    ):
        baseline = p99(earlier)
        figures.record("before", f"{what}, p99", baseline, None, "ms")
        figures.record("1,000,000 expired messages", f"{what}, p99", p99(later), baseline * 1.1, "ms")
    _require_all_accepted([*before, *during])


def _require_all_accepted(sent: list[Sent]) -> None:
    refused = [one.request.status for one in sent if not one.request.accepted]
    assert not refused, refused[:10]
