"""`make test-crash`, on a cluster: 2 Webapps, 3 Coreapps with 2 shards, 2 network nodes, MariaDB and Redis, under 200
messages per second, with 5 kills of each kind of process."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import random
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from harness import database_server, polling
from harness.cluster import Cluster, ProcessCounts
from harness.installation import keep_logs
from harness.redis_server import RedisServer
from harness.sink_process import SinkProcess
from tests.crash import leases, table
from tests.crash.disruptions import KillMariaDB, moments, until
from tests.crash.scene import ENVIRONMENT, Disruption, Phase, Scene
from tests.crash.test_crash import RATE, RESULTS
from tidings.storage.business.leases import LeaseRecord

SHAPE = ProcessCounts(webapps=2, coreapps=3, networks=2, shards=2)
KILLS = 5
# Factor on the number of messages of the test without a cluster: five kills with restarts take some 20 s.
LONGER = 3
# Seconds of silence after which a shard is taken over, and within which its messages must flow again.
TAKE_OVER, BACK = 2.0, 3.0
CLUSTER = ENVIRONMENT | {"TIDINGS_LEASE_SECONDS": str(TAKE_OVER), "TIDINGS_HEARTBEAT_SECONDS": "0.5"}


@dataclasses.dataclass(frozen=True, slots=True)
class KillOneOf:
    """`kill -9` a random process of a role, five times. It restarts after the others had time to continue."""

    role: str
    is_owner: bool = False  # of Coreapps, one that owns a shard

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        cluster = cast(Cluster, scene.installation)
        for moment in moments(scene, duration, KILLS):
            await until(moment)
            names = cluster.process_names(self.role)
            if self.is_owner:
                names = [name for name in names if name in await asyncio.to_thread(leases.owners, cluster)]
            process = cluster.processes[scene.rng.choice(names)]
            phase.trouble()
            await process.kill9()
            await until(time.monotonic() + scene.rng.uniform(0, 2 * TAKE_OVER))
            await process.start()


class KillRedis:
    """`kill -9` Redis five times. It loses all its data."""

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        redis = cast(Cluster, scene.installation).redis
        assert redis is not None
        for moment in moments(scene, duration, KILLS):
            await until(moment)
            phase.trouble()
            await asyncio.to_thread(redis.kill9)
            await until(time.monotonic() + scene.rng.uniform(0, 1))
            await asyncio.to_thread(redis.start)


class PauseAnOwner:
    """Pause an owner until its shards belong to others. It resumes as if no time had passed."""

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        cluster = cast(Cluster, scene.installation)
        for moment in moments(scene, duration, 2):
            await until(moment)
            owner = scene.rng.choice(sorted(await asyncio.to_thread(leases.owners, cluster)))
            phase.trouble()
            cluster.processes[owner].pause()
            try:
                await polling.until(lambda owner=owner: owner not in leases.owners(cluster))
                await until(time.monotonic() + scene.rng.uniform(0, TAKE_OVER))
            finally:
                cluster.processes[owner].resume()


class RestartInGoodOrder:
    """Stop each Coreapp as for an upgrade, and start it again."""

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        cluster = cast(Cluster, scene.installation)
        names = cluster.process_names("coreapp")
        for name, moment in zip(names, moments(scene, duration, len(names)), strict=True):
            await until(moment)
            phase.trouble()
            await cluster.processes[name].stop()
            await cluster.processes[name].start()


OWNER_KILLED = "an owner of a shard killed 5 times"
PHASES: tuple[tuple[str, Disruption], ...] = (
    (OWNER_KILLED, KillOneOf("coreapp", is_owner=True)),
    ("a Webapp killed 5 times", KillOneOf("webapp")),
    ("a network node killed 5 times", KillOneOf("network")),
    ("mariadbd killed 5 times", KillMariaDB(KILLS)),
    ("Redis killed 5 times", KillRedis()),
    ("robots killed 5 times", KillOneOf("robots")),
    ("an owner paused past its lease, twice", PauseAnOwner()),
    ("each Coreapp restarted in good order", RestartInGoodOrder()),
)


@pytest.mark.whole_system
async def test_no_message_is_lost_on_a_cluster_when_any_process_is_killed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options = request.config.option
    seed = options.seed if options.seed is not None else secrets.randbelow(1_000_000)
    print(f"\nseed {seed} (--seed={seed} repeats its random moments)", flush=True)
    mariadb, redis = database_server.make(flush_log=1, buffer_pool_mb=256), RedisServer()
    try:
        mariadb.start()
        redis.start()
        async with (
            Cluster(tmp_path, mariadb, redis, CLUSTER, shape=SHAPE) as cluster,
            SinkProcess(tmp_path, cluster.webhook_secret, verify_every=1) as sink,
        ):
            await cluster.start()
            scene = Scene(cluster, sink, await cluster.business(), random.Random(seed))
            await scene.open()
            try:
                settled = await _play(scene, options.messages, options.only)
                records = await asyncio.to_thread(leases.read, cluster)
                late = leases.late_commits(cluster)
                bad = await sink.counts()
            finally:
                if options.keep:
                    keep_logs(tmp_path, Path(options.keep))
    finally:
        redis.remove()
        mariadb.remove()
    print(f"\n{table.aligned(scene)}\n\n{table.NOTES}\n\n{leases.describe(records, late)}", flush=True)
    problems = [*table.problems(scene, settled=settled), *leases.overlaps(records), *_late_take_overs(scene, records)]
    if options.messages >= 10_000 and not options.only:
        _write(scene, seed, problems, leases.describe(records, late))
    assert not problems, "\n" + "\n".join(problems)
    assert not bad.bad_signatures


async def _play(scene: Scene, messages: int, only: str | None) -> bool:
    settled = True
    for name, disruption in PHASES:
        if only and only not in name:
            continue
        await scene.play(name, messages * LONGER // len(PHASES), RATE, disruption)
        settled &= await scene.settle()
        print(f"  {table.describe_phase(scene.phases[-1])}{'' if settled else ', NOT SETTLED'}", flush=True)
    return settled


def _late_take_overs(scene: Scene, records: Sequence[LeaseRecord]) -> list[str]:
    return [
        f"{phase.name}: a shard was claimed only {seconds:.1f} s after its owner was killed"
        for phase in scene.phases
        if phase.name == OWNER_KILLED
        for seconds in leases.take_over_seconds(records, phase.troubles)
        if seconds > BACK
    ]


def _write(scene: Scene, seed: int, problems: Sequence[str], log: str) -> None:
    date = datetime.date.today().isoformat()
    result = "\n".join(problems) or "The ledger balances."
    (RESULTS / f"{date}-crash-cluster.md").write_text(
        f"# A cluster killed under load, {date}\n\n"
        f"Taken by `make test-crash`, seed {seed}: messages to robots at {RATE:.0f} a second on {SHAPE.webapps} "
        f"Webapps, {SHAPE.coreapps} Coreapps with {SHAPE.shards} shards, {SHAPE.networks} network nodes, MariaDB "
        f"(`innodb_flush_log_at_trx_commit=1`) and Redis, everything on one machine; heartbeat 0.5 s, take-over "
        f"{TAKE_OVER:g} s.\n\n{table.markdown(scene)}\n\n{table.NOTES}\n\n{log}\n\n{result}\n"
    )
