"""A shard owner that reaches the database, but no Webapp reaches: another Coreapp takes its shards."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from harness import polling
from harness.proxy import Proxy
from tests import lease_records
from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, LINK_KEY, Running, World
from tests.coreapp.real_network import RealNetwork, real_network
from tests.coreapp.shard.test_several_shards import COUNT, NUMBERS, live_phones, owned_by, spread_over, start
from tidings.storage.business import leases, nodes, webapp_nodes, webapp_unreached
from tidings.storage.business.leases import LeaseRecord
from tidings.storage.business.nodes import NodeRecord
from tidings.storage.business.shards import Owner
from tidings.storage.database import Database
from tidings.wire import core
from tidings.wire.ids import MessageIds
from webapp.coreapps.links import CoreappLinks
from webapp.coreapps.reach_report import ReachReport
from webapp.coreapps.shard_map import DatabaseShardMap, ShardMap
from webapp.http.errors import CoreappRefused, CoreappUnavailable, CoreappUnreachable, Overloaded
from webapp.membership import WebappMembership

# Timeout in seconds of steps that take 6 s on an idle machine.
TIMEOUT = 60.0
# Times the duration of a few messages before the cut, in the same run, by which a busy machine may take longer.
SLOWER = 3.0
# Interval of heartbeats that a busy machine can keep.
PACE = {"heartbeat_seconds": 0.5}


class OtherWay:
    """Shard map of a Webapp that reaches Coreapps at different addresses from those that they advertise."""

    def __init__(self, database: Database, addresses: Mapping[str, str]) -> None:
        self._map = DatabaseShardMap(database)
        self._addresses = addresses

    async def owners(self) -> Sequence[Owner]:
        return [
            dataclasses.replace(owner, address=self._addresses.get(owner.address, owner.address))
            for owner in await self._map.owners()
        ]

    async def members(self) -> Sequence[NodeRecord]:
        return [
            dataclasses.replace(
                member,
                node=dataclasses.replace(
                    member.node, address=self._addresses.get(member.node.address, member.node.address)
                ),
            )
            for member in await self._map.members()
        ]


class Webapp:
    """Parts of a Webapp that communicate with Coreapps."""

    def __init__(self, database: Database, name: str, shard_map: ShardMap) -> None:
        self.membership = WebappMembership(database, name, lambda _: None)
        self.links = CoreappLinks(shard_map, LINK_KEY, owner_timeout=4.5, timeout=30.0)
        self.report = ReachReport(database, self.links, self.membership.webapp.incarnation)
        self.responses: dict[str, Exception | None] = {}  # by message id: the error; None if it was accepted
        self.late: set[str] = set()  # ids of messages that were sent while a Coreapp was known to be unreached
        self._ids = MessageIds()
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.membership.start()
        services = (self.links.connections, self.membership, self.report)
        self._tasks = [asyncio.create_task(service.run(self._stop)) for service in services]

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def die(self) -> None:
        """End all parts at once, as a crash does: the rows of this Webapp stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def send(self, to: str) -> Exception | None:
        """Send one message under an id, as a request does: it is repeated when no response comes."""
        message_id = self._ids.new()
        if self.links.unreached():
            self.late.add(message_id)

        def make(n: int, *, repeated: bool = False) -> core.AcceptMessage:
            content = b'{"type":"text","text":{"body":"%s"}}' % message_id.encode()
            return core.AcceptMessage(
                n=n, account=BUSINESS, to=to, kind="text", content=content, id=message_id, repeated=repeated
            )

        response: Exception | None = None
        try:
            await self.links.call(to, make, core.Accepted, again=lambda n: make(n, repeated=True))
        except (CoreappUnavailable, CoreappRefused, Overloaded) as error:
            response = error
        self.responses[message_id] = response
        return response

    async def _is_accepted(self, to: str) -> bool:
        return await self.send(to) is None

    async def sends(self, *recipients: str) -> None:
        """Send messages to each recipient until one is accepted."""
        for to in recipients:
            await polling.until(functools.partial(self._is_accepted, to))


class CrashLoop:
    """Webapp that dies in each of its lives, and is restarted at once."""

    def __init__(self, scene: Scene, *, reports: bool) -> None:
        """Create the loop.

        reports: whether each life ends just after its first report; otherwise just before it
        """
        self._scene = scene
        self._reports = reports
        self._over = asyncio.Event()
        self.lives = 0

    async def __aenter__(self) -> CrashLoop:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._over.set()
        await self._task

    async def _run(self) -> None:
        database = self._scene.world.database
        while not self._over.is_set():
            webapp = Webapp(database, "crashing", DatabaseShardMap(database))
            await webapp.start()
            try:
                await polling.until(lambda links=webapp.links: len(links.coreapps()) == len(links.unreached()) + 1)
                if self._reports:
                    await polling.until(functools.partial(self._has_reported, webapp.membership.webapp.incarnation))
            finally:
                await webapp.die()
            self.lives += 1

    async def _has_reported(self, incarnation: str) -> bool:
        own = webapp_unreached.table.c.incarnation == incarnation
        query = webapp_unreached.table.select().where(own, webapp_unreached.table.c.address == self._scene.advertised)
        async with self._scene.world.database.reading() as connection:
            return (await connection.execute(query)).first() is not None


class Stream:
    """Load of 20 messages per second to all recipients through one Webapp."""

    def __init__(self, webapp: Webapp) -> None:
        self._webapp = webapp
        self._numbers = itertools.cycle(NUMBERS)
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[Exception | None]] = []

    async def __aenter__(self) -> Stream:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._over.set()
        await self._task
        await asyncio.gather(*self._tasks)

    async def _run(self) -> None:
        while not self._over.is_set():
            self._tasks.append(asyncio.create_task(self._webapp.send(next(self._numbers))))
            await asyncio.sleep(0.05)


@dataclasses.dataclass
class Scene:
    """Two Coreapps that own two shards each; Webapps reach the first through `way`, the second through `other`."""

    world: World
    way: Proxy
    other: Proxy
    first: Running
    second: Running
    webapps: list[Webapp] = dataclasses.field(default_factory=list)

    @property
    def advertised(self) -> str:
        """Address that the first Coreapp advertises."""
        return "{}:{}".format(*self.way.address)

    async def add_webapp(self, name: str, shard_map: ShardMap | None = None) -> Webapp:
        webapp = Webapp(self.world.database, name, shard_map or DatabaseShardMap(self.world.database))
        self.webapps.append(webapp)
        await webapp.start()
        await polling.until(lambda: len(webapp.links.coreapps()) == 2 and not webapp.links.unreached())
        return webapp

    async def spread(self) -> None:
        await polling.until(lambda: spread_over(self.first, self.second), seconds=TIMEOUT)

    async def moved(self) -> None:
        """Wait until the second Coreapp owns every shard."""
        await polling.until(lambda: owned_by(self.second) == [0, 1, 2, 3], seconds=TIMEOUT)

    async def since(self) -> int:
        """Wait until a failed call is reported, and return its recorded time in Unix milliseconds."""
        found: list[int] = []

        async def is_recorded() -> bool:
            async with self.world.database.reading() as connection:
                query = webapp_unreached.table.select().where(webapp_unreached.table.c.address != "")
                found[:] = (await connection.execute(query)).scalars("since").all()
            return bool(found)

        await polling.until(is_recorded)
        return max(found)

    async def released(self) -> frozenset[LeaseRecord]:
        """Return the ended terms of the first Coreapp."""
        async with self.world.database.reading() as connection:
            found = await lease_records.list_records(connection)
        return frozenset(record for record in found if record.owner == "one" and record.ended_at > 0)


@pytest.fixture
async def servers(world: World, database_factory: DatabaseFactory, tmp_path: Path) -> AsyncIterator[RealNetwork]:
    async with real_network(world, database_factory, tmp_path) as servers:
        yield servers
        await world.close()


@pytest.fixture
async def scene(world: World, servers: RealNetwork) -> AsyncIterator[Scene]:
    way = Proxy("127.0.0.1", 1)
    await way.start()
    first = await start(world, servers, "one", **PACE, address="{}:{}".format(*way.address))
    way.set_target(*first.server.sockets[0].getsockname()[:2])
    other = Proxy("127.0.0.1", 1)
    await other.start()
    second = await start(world, servers, "two", owned=False, **PACE, address="{}:{}".format(*other.address))
    other.set_target(*second.server.sockets[0].getsockname()[:2])
    scene = Scene(world, way, other, first, second)
    try:
        await scene.spread()
        yield scene
    finally:
        for webapp in scene.webapps:
            await webapp.stop()
        await way.stop()
        await other.stop()


@pytest.mark.parametrize("cut", ["packets are lost", "connections are refused"])
async def test_an_owner_that_no_webapp_reaches_releases_its_shards_after_5_seconds(
    scene: Scene, servers: RealNetwork, cut: str
) -> None:
    phones = await live_phones(servers)
    webapp = await scene.add_webapp("w1")
    began = asyncio.get_running_loop().time()
    await webapp.sends(*NUMBERS)
    usual = asyncio.get_running_loop().time() - began
    before = await scene.released()
    async with Stream(webapp):
        if cut == "packets are lost":
            scene.way.shut()
        else:
            await scene.way.stop()
        since = await scene.since()
        await scene.moved()
        records = await scene.released() - before
        assert len(records) == 2
        for record in records:
            assert record.ending == leases.RELEASED, "handed over, not taken"
            assert 5_000 <= record.ended_at - since <= 8_000 + 1_000 * SLOWER * usual
    # The Coreapp that was cut off responds to earlier requests, too late.
    if cut == "packets are lost":
        scene.way.open()
    else:
        await scene.way.start()
    await scene.spread()
    await webapp.sends(*NUMBERS)
    refused = [response for response in webapp.responses.values() if response is not None]
    unknown = {
        message_id
        for message_id, response in webapp.responses.items()
        if isinstance(response, CoreappUnavailable) and not isinstance(response, CoreappUnreachable)
    }
    assert not unknown & webapp.late, "503 for all but those that were under way"
    print(f"{cut}: {len(webapp.responses)} messages, {len(refused)} not accepted, {len(unknown)} of these unknown")
    accepted = {message_id for message_id, response in webapp.responses.items() if response is None}

    def shown() -> collections.Counter[str]:
        return collections.Counter(message["text"]["body"] for phone in phones for message in phone.shown)  # type: ignore[index]

    await polling.until(lambda: accepted <= shown().keys(), seconds=TIMEOUT)
    assert set(shown().values()) == {1}, "nobody sees a message twice"


async def test_an_owner_keeps_its_shards_while_one_webapp_reaches_it(scene: Scene, servers: RealNetwork) -> None:
    await live_phones(servers)
    database = scene.world.database
    direct = "{}:{}".format(*scene.first.server.sockets[0].getsockname()[:2])
    cut_off = await scene.add_webapp("w1")
    other = await scene.add_webapp("w2", OtherWay(database, {scene.advertised: direct}))
    await cut_off.sends(*NUMBERS)
    before = await scene.released()
    scene.way.shut()
    await scene.since()
    await polling.until(lambda: cut_off.links.unreached().get(scene.advertised, 0) > 8, seconds=TIMEOUT)
    assert await scene.released() == before
    assert spread_over(scene.first, scene.second)
    assert [await other.send(number) for number in NUMBERS] == [None] * COUNT
    await other.stop()
    scene.webapps.remove(other)
    await scene.moved()


async def test_dead_webapps_do_not_prevent_shards_from_moving(scene: Scene) -> None:
    database = scene.world.database
    async with database.transaction() as connection:
        for name in ("reported", "reported nothing"):
            await webapp_nodes.renew(connection, webapp_nodes.WebappNode(name, name), delete_after=3600)
        await webapp_unreached.record(connection, "reported", {scene.advertised: 0.0})
        silent_since = webapp_nodes.table.c.heartbeat_at - 30_000
        await connection.execute(webapp_nodes.table.update().values(heartbeat_at=silent_since))
    webapp = await scene.add_webapp("w1")
    before = await scene.released()
    scene.way.shut()
    since = await scene.since()
    await scene.moved()
    assert webapp.links.unreached().keys() == {scene.advertised}
    assert min(record.ended_at for record in await scene.released() - before) - since >= 5_000


@pytest.mark.parametrize("reports", [False, True])
async def test_a_webapp_that_crashes_again_and_again_does_not_keep_shards_where_they_are(
    scene: Scene, reports: bool
) -> None:
    webapp = await scene.add_webapp("w1")
    before = await scene.released()
    scene.way.shut()
    since = await scene.since()
    async with CrashLoop(scene, reports=reports) as loop:
        await scene.moved()
        assert loop.lives > 0
    assert webapp.links.unreached().keys() == {scene.advertised}
    assert min(record.ended_at for record in await scene.released() - before) - since >= 5_000


async def test_no_shard_moves_while_webapps_reach_no_other_coreapp(scene: Scene) -> None:
    webapp = await scene.add_webapp("w1")
    before = await scene.released()
    scene.way.shut()
    scene.other.shut()
    await polling.until(lambda: min([0.0, 0.0, *webapp.links.unreached().values()][-2:]) > 8, seconds=TIMEOUT)
    assert await scene.released() == before
    assert spread_over(scene.first, scene.second)
    scene.other.open()
    await scene.moved()


async def test_no_shard_moves_beside_a_coreapp_of_the_previous_release(scene: Scene) -> None:
    webapp = await scene.add_webapp("w1")
    before = await scene.released()
    async with scene.world.database.transaction() as connection:
        await connection.execute(nodes.table.update().where(nodes.table.c.node == "two").values(heeding=None))
    scene.way.shut()
    await polling.until(lambda: webapp.links.unreached().get(scene.advertised, 0) > 8, seconds=TIMEOUT)
    assert await scene.released() == before
    assert spread_over(scene.first, scene.second)


async def test_a_coreapp_with_a_wrong_address_gets_no_shard(scene: Scene, servers: RealNetwork) -> None:
    webapp = await scene.add_webapp("w1")
    third = await start(scene.world, servers, "three", owned=False, **PACE, address="127.0.0.1:1")

    async def is_reported() -> bool:
        async with scene.world.database.reading() as connection:
            reports = await webapp_unreached.list_reports(connection)
        return any("127.0.0.1:1" in report.unreached for report in reports)

    await polling.until(is_reported)
    await polling.until(lambda: webapp.links.unreached().get("127.0.0.1:1", 0) > 8, seconds=TIMEOUT)
    async with scene.world.database.reading() as connection:
        assert "three" in {member.node.name for member in await nodes.list_members(connection) if member.is_live}
        assert "three" not in {record.owner for record in await lease_records.list_records(connection)}
    # Without another Coreapp it keeps its shards.
    await scene.first.stopped()
    await scene.second.stopped()
    await polling.until(lambda: owned_by(third) == [0, 1, 2, 3], seconds=TIMEOUT)
