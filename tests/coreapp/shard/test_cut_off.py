"""A Coreapp cut off from the database only, and one that takes over: the network has a login of only one of them."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from coreapp.journal.journal import Journal
from coreapp.media.pointers import MediaSource
from coreapp.media.stored import StoredMedia
from coreapp.media.uploads import Uploader
from coreapp.peers.identities import Identities
from coreapp.retention import old_rows
from coreapp.shard.shard import open_shard
from harness.proxy import Proxy
from network.connections.requests import DeviceRequests
from network.connections.session import DeviceSession
from tests.conftest import DatabaseFactory
from tests.coreapp import media_scene
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.real_network import RealNetwork, real_network
from tests.coreapp.signals import Signals, soon
from tidings.storage.business import media
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.database import Database
from tidings.wire import device

LEASE = 3.0  # seconds


class Logins:
    """The business's logins at the network in order, by epoch, and how each ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.signals = Signals()
        self.epochs: list[int] = []
        self.refused: list[int] = []
        self.live = 0
        login, detached, failed = DeviceRequests._login, DeviceSession.detached, DeviceRequests._fail
        requested: dict[tuple[DeviceRequests, int], int] = {}

        async def counted(requests: DeviceRequests, frame: device.Login) -> None:
            if frame.number == BUSINESS:
                self.epochs.append(frame.epoch)
                requested[requests, frame.n] = frame.epoch
            await login(requests, frame)
            self.live += BUSINESS in requests._caller.devices
            self.signals.changed()

        def left(session: DeviceSession, number: str, reason: str) -> None:
            detached(session, number, reason)
            self.live -= number == BUSINESS
            self.signals.changed()

        def refused(requests: DeviceRequests, n: int, reason: str, detail: str) -> None:
            failed(requests, n, reason, detail)
            if reason == device.STALE_EPOCH:
                self.refused.append(requested[requests, n])

        monkeypatch.setattr(DeviceRequests, "_login", counted)
        monkeypatch.setattr(DeviceSession, "detached", left)
        monkeypatch.setattr(DeviceRequests, "_fail", refused)


@pytest.fixture
def database_engine() -> str:
    """Return the kind of database: only one with a network address can be cut off."""
    return "mariadb"


@pytest.fixture
async def gate(world: World) -> AsyncIterator[Proxy]:
    """Proxy between one Coreapp and the database."""
    url = sa.make_url(world.database.settings.url)
    assert url.host
    assert url.port
    gate = Proxy(url.host, url.port)
    await gate.start()
    yield gate
    gate.open()
    await world.close()
    await gate.stop()
    # Connections that were cut off while being opened are closed by their finalizers, which need the loop.
    gc.collect()


@pytest.fixture
async def behind(world: World, gate: Proxy) -> AsyncIterator[World]:
    """World for a Coreapp that reaches the database through the proxy."""
    url = sa.make_url(world.database.settings.url).set(host=gate.address[0], port=gate.address[1])
    settings = dataclasses.replace(world.database.settings, url=url.render_as_string(hide_password=False))
    # The idle time-out of a Coreapp: a transaction that is cut off keeps no locks.
    database = Database(settings, "business", idle_timeout=LEASE)
    yield World(database, world.network, world.sink, world.settings.model_copy(update={"database": settings}))
    await database.close()


async def start(world: World, network: RealNetwork, node: str, lease: float = LEASE) -> Running:
    return await world.start(
        node=node,
        network_tcp=network.tcp,
        network_http=network.http,
        lease_seconds=lease,
        heartbeat_seconds=min(0.2, lease / 4),
    )


async def test_an_owner_cut_off_from_the_database_logs_out_and_stays_out(
    world: World,
    gate: Proxy,
    behind: World,
    database_factory: DatabaseFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logins = Logins(monkeypatch)
    async with real_network(world, database_factory, tmp_path) as network:
        first = await start(behind, network, "first")
        world.running.append(first)
        await logins.signals.until(lambda: logins.live == 1)
        gate.shut()
        cut_at = asyncio.get_running_loop().time()
        # It logs out by its own clock, before another process may take over. No other process exists yet.
        await logins.signals.until(lambda: logins.live == 0)
        assert asyncio.get_running_loop().time() - cut_at < LEASE
        assert len(first.node.shards) == 0
        second = await start(world, network, "second")
        await logins.signals.until(lambda: logins.live == 1)
        assert isinstance(await second.client.check("+15550119999"), list)
        # The first process reaches its database again and finds that the shard is taken.
        gate.open()
        assert (await first.client.send("15550119999")).code == 1018
        await second.stopped()
        await world.owner(first)
        await logins.signals.until(lambda: logins.live == 1)
        assert logins.epochs == [1, 2, 3]
        await first.stopped()


async def test_the_network_refuses_the_earlier_of_two_owners_and_it_becomes_a_standby(
    world: World,
    gate: Proxy,
    behind: World,
    database_factory: DatabaseFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first process regards its lease as valid, as its setting is longer than the other's."""
    logins = Logins(monkeypatch)
    async with real_network(world, database_factory, tmp_path) as network:
        first = await behind.start(
            node="first",
            network_tcp=network.tcp,
            network_http=network.http,
            lease_seconds=3600.0,
            heartbeat_seconds=0.2,
        )
        world.running.append(first)
        await logins.signals.until(lambda: logins.live == 1)
        gate.cut()
        second = await start(world, network, "second", lease=0.5)
        await soon(lambda: len(first.node.shards) == 0)
        await logins.signals.until(lambda: logins.live == 1)
        assert logins.epochs == [1, 2, 1]
        assert logins.refused == [1]
        assert second.shard.link.connected
        gate.open()
        await second.stopped()
        await first.stopped()


async def test_every_write_of_an_owner_without_a_lease_is_refused(world: World) -> None:
    running = await world.start()
    shard = running.shard
    late = Lease(0, "first", shard.context.lease.epoch - 1)
    journal = Journal(world.database, late, last_seq=0, seal=lambda callbacks: [])
    context = dataclasses.replace(shard.context, lease=late, journal=journal)
    row = await media_scene.upload(world)
    assert not shard.context.config.preferences().security
    files = media_scene.directory(world)
    stored = StoredMedia(context, files, Uploader(context.network, context.device, asyncio.Semaphore(1)))
    attempts: list[Callable[[], Any]] = [
        Identities(context).open,
        functools.partial(stored.find, MediaSource(row.id), lambda why: None),
        *old_rows(context, unread_days=30, dead_callback_days=30).values(),
        functools.partial(open_shard, running.node.process, late, context.device),
    ]
    for attempt in attempts:
        with pytest.raises(LeaseLost):
            await attempt()
    async with world.database.reading() as connection:
        kept = await media.find(connection, BUSINESS, row.id)
    assert kept is not None
    assert kept.blob is None
