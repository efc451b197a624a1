"""A Coreapp dies with 5,000 unsent messages. Another takes them over, and still serves its own recipients in time.

The requests of 40 s from the death are compared with those of the same Coreapp alone, and with as many ordinary
messages per second as it then sends orphaned ones. The second comparison has the limit: sending a message costs the
same, whoever accepted it.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from harness import database_server, polling
from harness.client import Sent
from tests.load.scene import LoadScene, figures_of, p99, slowest, took, under_load
from tidings.wire import addresses

pytestmark = pytest.mark.whole_system

ROBOTS = 1000
SHARDS = 4
ORPHANS = 5_000
# Messages per second whose requests are measured.
RATE = 40.0
# Ordinary messages per second at the same time. The backlog of two shards is sent at 400 to 600 per second.
ORDINARY = 400.0
BASELINE_SECONDS = 40.0
# After the lease of 3 s.
TAKEOVER_SECONDS = 60.0


def owned_by(scene: LoadScene, owner: str) -> list[str]:
    """Return the recipients whose shard this Coreapp owns."""
    sql = f"SELECT shard FROM shards WHERE owner = '{owner}'"
    shards = {row[0] for row in scene.installation.read_rows("business", sql)}
    return [each for each in scene.numbers if addresses.shard_of(each, SHARDS) in shards]


async def test_5_000_orphaned_jobs_are_taken_over_and_delay_nobody_else(tmp_path: Path) -> None:
    mariadb = database_server.make(flush_log=1, buffer_pool_mb=256)
    mariadb.start()
    try:
        async with under_load(tmp_path, robots=ROBOTS, mariadb=mariadb, shards=SHARDS, coreapps=2) as scene:
            await _measure(scene)
    finally:
        mariadb.remove()


async def _measure(scene: LoadScene) -> None:
    figures = figures_of("test_orphaned_jobs.py")
    installation = scene.installation
    survivor, victim = installation.processes["coreapp"], installation.processes["coreapp2"]
    await installation.wait_for_owners({"coreapp": 2, "coreapp2": 2})
    kept, orphaned = owned_by(scene, "coreapp"), owned_by(scene, "coreapp2")
    measured, others = kept[: len(kept) // 2], kept[len(kept) // 2 :]
    alone = await scene.send_for(BASELINE_SECONDS, RATE, lambda: scene.rng.choice(measured))
    await scene.settle()
    async with scene.sending(ORDINARY, lambda: scene.rng.choice(others)):
        beside = await scene.send_for(BASELINE_SECONDS, RATE, lambda: scene.rng.choice(measured))
    await scene.settle()

    # Without the network, accepted messages stay in the job queue.
    installation.processes["network"].pause()
    try:
        lost = await scene.send([scene.rng.choice(orphaned) for _ in range(ORPHANS)], 400.0)
        waiting = await asyncio.to_thread(scene.jobs)
        await victim.kill9()
    finally:
        installation.processes["network"].resume()
    killed, killed_at = time.monotonic(), time.time()
    assert sum(one.request.accepted for one in lost) == ORPHANS
    assert waiting >= ORPHANS
    orphans = f"SELECT COUNT(*) FROM jobs WHERE created_at < {killed_at * 1000:.0f}"
    async with scene.sending(RATE, lambda: scene.rng.choice(measured)) as during:
        await polling.until(lambda: installation.owners() == {"coreapp": 4}, seconds=TAKEOVER_SECONDS, pause=0.25)
        taken = time.monotonic() - killed
        await polling.until(
            lambda: not installation.read_value("business", orphans), seconds=TAKEOVER_SECONDS, pause=0.5
        )
        drained = time.monotonic() - killed
        # As long as the baseline, so that both percentiles stand for as many requests.
        await asyncio.sleep(max(0.0, BASELINE_SECONDS - drained))
    print(f"  slowest after the kill: {slowest(during, killed_at)}", flush=True)
    assert survivor.pid is not None
    await scene.settle()
    scene.require_balance()
    figures.record("5,000 orphaned jobs", "taken over after", taken, TAKEOVER_SECONDS, "s")
    figures.record("5,000 orphaned jobs", "all sent after", drained, TAKEOVER_SECONDS, "s")
    what = "requests of other shards, p99"
    baseline = p99(took(beside))
    figures.record("alone", what, p99(took(alone)), None, "ms")
    figures.record(f"beside {ORDINARY:g} ordinary messages per second", what, baseline, None, "ms")
    figures.record("5,000 orphaned jobs", "slowest request of other shards", max(took(during)) * 1000, None, "ms")
    figures.record("5,000 orphaned jobs", what, p99(took(during)), baseline * 1.2, "ms")
    _require_all_accepted(during)


def _require_all_accepted(sent: list[Sent]) -> None:
    refused = [one.request.status for one in sent if not one.request.accepted]
    assert not refused, refused[:10]
