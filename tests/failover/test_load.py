"""Messages while the database moves to another server behind its address, or is unavailable for half a minute."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import replication
from harness.installation import FAMILIES, Installation
from harness.proxy import Proxy
from harness.replication import USER, Pair
from tests.crash.scene import ENVIRONMENT, Phase, Scene
from tests.reliability.scenario import run_scenario

pytestmark = pytest.mark.whole_system

AWAY = 30.0
RECOVERY = 45.0


class Behind(Installation):
    """Cluster whose processes know one address of the database, the proxy's."""

    def __init__(self, directory: Path, pair: Pair, proxy: Proxy) -> None:
        urls = {
            f"TIDINGS_{family.upper()}_DB_URL": f"mysql+aiomysql://{USER}@127.0.0.1:{proxy.address[1]}/tidings_{family}"
            for family in FAMILIES
        }
        super().__init__(directory, None, {**ENVIRONMENT, **urls})
        self._pair = pair

    @contextlib.contextmanager
    def _tables(self, family: str) -> Iterator[Any]:
        with self._pair.primary.connect(f"tidings_{family}") as connection, connection.cursor() as cursor:
            yield cursor


class Trouble:
    def __init__(self, pair: Pair, proxy: Proxy) -> None:
        self.pair = pair
        self.proxy = proxy

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        await asyncio.sleep(scene.rng.uniform(1, 3))
        phase.trouble()
        await self.happen()

    async def happen(self) -> None:
        raise NotImplementedError


class SwitchOver(Trouble):
    """Failover: the primary is read-only for a while, then the other server is the primary. Old connections
    stay open."""

    async def happen(self) -> None:
        await asyncio.to_thread(self.pair.switch)
        self.proxy.set_target("127.0.0.1", self.pair.primary.port)


class Silence(Trouble):
    """Silence: all packets are dropped, as when a firewall loses its connection table."""

    async def happen(self) -> None:
        self.proxy.shut()
        await asyncio.sleep(AWAY)
        self.proxy.open()


class NobodyThere(Trouble):
    """Outage: connections are closed, and no process listens."""

    async def happen(self) -> None:
        await self.proxy.stop()
        await asyncio.sleep(AWAY)
        await self.proxy.start()


class PrimaryDies(Trouble):
    """Permanent loss of the primary. The replica has everything that the primary had committed."""

    async def happen(self) -> None:
        await asyncio.to_thread(self.pair.lose_primary)
        self.proxy.set_target("127.0.0.1", self.pair.primary.port)
        self.proxy.cut()
        self.proxy.open()


async def test_no_message_is_lost_or_doubled_when_the_database_moves_or_is_unavailable(tmp_path: Path) -> None:
    with replication.running(*(f"tidings_{family}" for family in FAMILIES)) as pair:
        proxy = Proxy("127.0.0.1", pair.primary.port)
        await proxy.start()
        try:
            phases = (
                ("the primary changes, old connections stay", 15.0, SwitchOver(pair, proxy)),
                ("no answer for 30 s", 40.0, Silence(pair, proxy)),
                ("no database for 30 s", 40.0, NobodyThere(pair, proxy)),
                ("the primary changes back", 15.0, SwitchOver(pair, proxy)),
                ("the primary dies", 15.0, PrimaryDies(pair, proxy)),
            )
            scene = await run_scenario(
                tmp_path / "play",
                phases,
                test="tests/failover/test_load.py::test_no_message_is_lost_or_doubled_when_the_database_moves_or_is_unavailable",
                recovery=AWAY + RECOVERY,
                installation=Behind(tmp_path, pair, proxy),
            )
            assert all(phase.troubles for phase in scene.phases)
        finally:
            await proxy.stop()
