"""Messages while nodes of the cluster die, are cut off or are paused, with Coreapps on different nodes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import polling
from harness.galera import Galera, Node
from harness.installation import FAMILIES, Installation
from harness.processes import Process
from tests.crash.scene import ENVIRONMENT, LEASE_SECONDS, Phase, Scene
from tests.galera.balancer import Balancer
from tests.reliability.scenario import run_scenario

pytestmark = pytest.mark.whole_system

# Seconds of a phase, in which a node fails and returns once; and the maximum until another Coreapp owns the shard.
PHASE, TIMEOUT = 24.0, 30.0
# Seconds from a failure to all three callbacks of a message that was sent after it.
RECOVERY = 45.0


class Spread(Installation):
    """Coreapp on the first node, a standby on the second. Webapp and network use the balancer's node."""

    def __init__(self, directory: Path, cluster: Galera, balancer: Balancer) -> None:
        super().__init__(directory, cluster.nodes[0], ENVIRONMENT)
        self.cluster = cluster
        for process, port in (
            (self.processes["coreapp"], cluster.nodes[0].port),
            (self.standby, cluster.nodes[1].port),
            (self.processes["webapp"], balancer.port),
            (self.processes["network"], balancer.port),
        ):
            for family in FAMILIES:
                variable = f"TIDINGS_{family.upper()}_DB_URL"
                process.environment[variable] = f"mysql+aiomysql://root@127.0.0.1:{port}/tidings_{family}"

    @contextlib.contextmanager
    def _tables(self, family: str) -> Iterator[Any]:
        node = next(node for node in self.cluster.nodes if node.is_ready)
        with node.connect(f"tidings_{family}") as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION wsrep_sync_wait = 1")
            yield cursor

    def owner(self) -> str:
        return str(self.read_value("business", "SELECT owner FROM shards WHERE shard = 0"))

    def owner_process(self) -> Process:
        return self.standby if self.owner() == "standby" else self.processes["coreapp"]

    def owners_node(self) -> Node:
        return self.cluster.nodes[1 if self.owner() == "standby" else 0]


def spread(scene: Scene) -> Spread:
    assert isinstance(scene.installation, Spread)
    return scene.installation


async def taken_over(scene: Scene, before: str) -> None:
    """Wait until a process other than `before` owns the shard. Raises `TimeoutError`."""

    async def is_another() -> bool:
        return await asyncio.to_thread(spread(scene).owner) not in (before, "")

    await polling.until(is_another, seconds=TIMEOUT)


class Trouble:
    """Failure of the node of the shard's owner, or of another node. Afterwards the cluster is complete again."""

    async def prepare(self, scene: Scene) -> None:
        if spread(scene).standby.pid is None:
            await spread(scene).standby.start()

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        installation = spread(scene)
        began = time.monotonic()
        await asyncio.sleep(scene.rng.uniform(0, duration / 6))
        phase.trouble()
        await self.happen(scene, phase)
        await asyncio.to_thread(installation.cluster.wait_until_whole)
        await asyncio.sleep(max(0.0, began + duration - time.monotonic()))

    async def happen(self, scene: Scene, phase: Phase) -> None:
        raise NotImplementedError


class OwnersNodeDies(Trouble):
    """`kill -9` of the owner's node. It returns and catches up."""

    async def happen(self, scene: Scene, phase: Phase) -> None:
        before, node = spread(scene).owner(), spread(scene).owners_node()
        await asyncio.to_thread(node.kill9)
        await taken_over(scene, before)
        await asyncio.to_thread(node.start)


class OwnersNodeIsCutOff(Trouble):
    """Partition of the owner's node from the other nodes, not from its clients: it responds, but accepts no
    writes."""

    async def happen(self, scene: Scene, phase: Phase) -> None:
        before, node = spread(scene).owner(), spread(scene).owners_node()
        await asyncio.to_thread(node.isolate)
        try:
            await taken_over(scene, before)
        finally:
            await asyncio.to_thread(node.isolate, isolated=False)


class OwnersNodeStandsStill(Trouble):
    """SIGSTOP of the owner's node. It resumes long after the others have excluded it."""

    async def happen(self, scene: Scene, phase: Phase) -> None:
        installation = spread(scene)
        before, node = installation.owner(), installation.owners_node()
        node.pause()
        try:
            await taken_over(scene, before)
            await asyncio.sleep(LEASE_SECONDS)
        finally:
            node.resume()


class OwnerStandsStill(Trouble):
    """Pause of the owner beyond its lease, while its node runs. It resumes in the middle of work, at another node than
    the new owner."""

    async def happen(self, scene: Scene, phase: Phase) -> None:
        before, process = spread(scene).owner(), spread(scene).owner_process()
        process.pause()
        try:
            await taken_over(scene, before)
            await asyncio.sleep(scene.rng.uniform(0, 1))
        finally:
            process.resume()


@dataclasses.dataclass(frozen=True, slots=True)
class OthersNodeDies(Trouble):
    """`kill -9` of the node that the balancer leads Webapp and network to."""

    balancer: Balancer

    async def happen(self, scene: Scene, phase: Phase) -> None:
        node = self.balancer.node
        await asyncio.to_thread(node.kill9)
        await asyncio.sleep(LEASE_SECONDS)
        await asyncio.to_thread(node.start)


def read_logs(directory: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in directory.glob("*.log"))


async def test_no_message_is_lost_or_doubled_when_a_node_fails(tmp_path: Path, cluster: Galera) -> None:
    first, second, third = cluster.nodes
    async with Balancer([third, second, first]) as balancer:
        phases = (
            ("the owner's node is killed", OwnersNodeDies()),
            ("the owner's node is cut off", OwnersNodeIsCutOff()),
            ("the owner stands still", OwnerStandsStill()),
            ("the owner's node stands still", OwnersNodeStandsStill()),
            ("the node of Webapp and network is killed", OthersNodeDies(balancer)),
        )
        installation = Spread(tmp_path, cluster, balancer)
        scene = await run_scenario(
            tmp_path / "play",
            [(name, PHASE, trouble) for name, trouble in phases],
            test="tests/galera/test_load.py::test_no_message_is_lost_or_doubled_when_a_node_fails",
            recovery=RECOVERY,
            installation=installation,
        )
        logs = await asyncio.to_thread(read_logs, tmp_path)
    assert len(scene.phases) == len(phases)
    # The paused owner has received that it no longer owns the shard.
    assert "lease.lost" in logs
