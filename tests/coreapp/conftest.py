"""A whole Coreapp in this process: its node, its link, a scripted network and a webhook."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from coreapp.settings import Settings
from coreapp.shard.link import LinkHandler, LinkKeys
from coreapp.shard.node import ShardNode
from coreapp.shard.shard import Shard
from harness import polling
from tests.conftest import DatabaseFactory
from tests.coreapp.phones import Phone
from tests.coreapp.scripted_network import ScriptedNetwork
from tests.coreapp.signals import TIMEOUT
from tests.coreapp.sink import SECRET, Sink
from tidings.aio.clock import Clock, SystemClock
from tidings.client.http import NetworkApi
from tidings.egress import addresses
from tidings.egress.settings import OutgoingSettings
from tidings.net.unauthenticated import UnauthenticatedLinks
from tidings.secrets import operator_key
from tidings.secrets.process_secrets import CoreappSecrets, SecretKeys
from tidings.storage.business import application_settings, jobs, nodes, shards
from tidings.storage.database import Database
from tidings.wire import connection as wire
from tidings.wire import core
from tidings.wire.requests import Requests

BUSINESS = "15550000000"
LINK_KEY = "the link key"
MASTER_KEY = b"m" * 32


class Client:
    """Webapp's end of the link."""

    def __init__(self) -> None:
        self.requests: Requests[Any] = Requests()
        self.connection: wire.Connection | None = None
        self.gone = asyncio.Event()
        self.reason = ""

    def opened(self, connection: wire.Connection) -> None:
        self.connection = connection

    def received(self, connection: wire.Connection, frame: Any) -> None:
        self.requests.resolve(frame.n, frame)

    def closed(self, connection: wire.Connection, reason: str) -> None:
        self.reason = reason
        self.requests.lost(reason)
        self.gone.set()

    async def call(self, make: Callable[[int], Any]) -> Any:
        return await self.requests.call(self.connection, make, timeout=TIMEOUT)

    async def hello(self) -> None:
        own = operator_key.derive(MASTER_KEY)
        await self.call(lambda n: core.Hello(n, LINK_KEY, operator_key=own))

    async def send(self, to: str, text: str = "hello", request_id: str = "") -> Any:
        content = b'{"type":"text","text":{"body":"%s"}}' % text.encode()
        return await self.call(lambda n: core.AcceptMessage(n, BUSINESS, to, "text", content, request_id))

    async def check(self, *inputs: str, wait: bool = True, force: bool = False, of: str = "") -> list[core.Contact]:
        response = await self.call(lambda n: core.CheckContacts(n, BUSINESS, list(inputs), wait, force, of=of))
        assert isinstance(response, core.Contacts), response
        return response.contacts


@dataclasses.dataclass
class Running:
    """One Coreapp process, as a test sees it."""

    node: ShardNode
    client: Client
    stop: asyncio.Event
    task: asyncio.Task[None]
    server: asyncio.Server
    database: Database

    @property
    def shard(self) -> Shard:
        assert self.node.shards.first is not None
        return self.node.shards.first

    async def stopped(self) -> None:
        """Stop the process cleanly."""
        self.stop.set()
        async with asyncio.timeout(TIMEOUT):
            await self.task
        self.server.close()
        if self.client.connection is not None:
            self.client.connection.close("test")

    async def killed(self) -> None:
        """End the process at once and expire its lease: nothing is flushed, nothing is released.

        Unlike with a real kill, `finally` blocks run.
        """
        for shard in self.node.shards:
            shard.context.journal.fail(Killed("killed"))
            shard.link.drop("killed")
        with contextlib.suppress(Killed):
            async with asyncio.timeout(TIMEOUT):
                await self.task
        async with self.database.transaction() as connection:
            await connection.execute(shards.table.update().values(heartbeat_at=0))
            await connection.execute(nodes.table.delete())
        self.server.close()


class Killed(Exception):
    """Error that stands for the death of the process."""


class World:
    """Environment of Coreapps: database, network and webhook."""

    def __init__(self, database: Database, network: ScriptedNetwork, sink: Sink, settings: Settings) -> None:
        self.database = database
        self.network = network
        self.sink = sink
        self.settings = settings
        self.running: list[Running] = []

    def add_phones(self, *numbers: str) -> list[Phone]:
        phones = [Phone(number) for number in numbers]
        self.network.add(*phones)
        return phones

    async def configure(self, **changes: Any) -> None:
        """Set application settings."""
        async with self.database.transaction() as connection:
            await application_settings.change_settings(connection, BUSINESS, changes)

    async def start(
        self, *, clock: Clock | None = None, owned: bool = True, address: str = "", **settings: Any
    ) -> Running:
        """Start a Coreapp.

        owned: wait until it owns the shard; false for a standby.
        address: address that it advertises to Webapps; empty for that of its link.
        """
        chosen = self.settings.model_copy(update=settings)
        network = NetworkApi(chosen.network_http)
        advertised = address or f"{chosen.node}:1"
        node = ShardNode(chosen, self.database, network, clock=clock or SystemClock(), address=lambda: advertised)
        node.process.working.prepare()
        unauthenticated_links = UnauthenticatedLinks()
        server = await wire.listen(
            "127.0.0.1",
            0,
            core.Request,
            lambda: LinkHandler(
                LinkKeys.of(LINK_KEY, SecretKeys.of(MASTER_KEY)),
                chosen.node,
                node.shards,
                numbers=node.numbers,
                unauthenticated_links=unauthenticated_links,
                databases=node.databases,
            ),
        )
        stop = asyncio.Event()

        async def run() -> None:
            async with network:
                await node.run(stop)

        task = asyncio.create_task(run())
        client = Client()
        await wire.connect(*server.sockets[0].getsockname()[:2], core.Response, client)
        await client.hello()
        running = Running(node, client, stop, task, server, self.database)
        self.running.append(running)
        if owned:
            await self.owner(running)
        return running

    async def owner(self, running: Running) -> None:
        """Wait until this process owns the shard and is logged in."""
        owned = asyncio.create_task(running.node.owned.wait())
        await asyncio.wait([owned, running.task], timeout=TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        if running.task.done():
            running.task.result()
        assert owned.done(), "it never became the owner"

    async def start_with_session(self, number: str, *others: str, **settings: Any) -> tuple[Running, Phone, str]:
        """Start a Coreapp; return it, the phone with this number, and the id of a message that the phone has read.

        others: numbers of further phones, which the Coreapp has looked up
        """
        phone, *_ = self.add_phones(number, *others)
        running = await self.start(**settings)
        await self.connected(running)
        await running.client.check(number, *others)
        message = (await running.client.send(number)).id
        await self.network.signals.until(lambda: len(self.network.sends) == 1)
        phone.read(self.network.sends[0].kind, self.network.sends[0].body)
        return running, phone, message

    async def until_jobs(self, count: int) -> None:
        """Wait until `count` jobs are on disk. A status can be posted before its job is deleted."""

        async def are_there() -> bool:
            async with self.database.reading() as connection:
                return await jobs.count(connection) == count

        await polling.until(are_there, pause=0.01)

    async def connected(self, running: Running) -> None:
        await self.network.signals.until(lambda: self.network.live is not None)

    async def close(self) -> None:
        for running in self.running:
            if not running.task.done():
                await running.stopped()


@pytest.fixture
async def network() -> AsyncIterator[ScriptedNetwork]:
    network = ScriptedNetwork()
    await network.start()
    yield network
    await network.stop()


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    sink = Sink()
    await sink.start()
    yield sink
    await sink.stop()


def make_settings(tmp_path: Path, database: Database, network: ScriptedNetwork) -> Settings:
    return Settings(
        data_dir=tmp_path,
        database=database.settings,
        secrets=CoreappSecrets(
            link_key=LINK_KEY,
            registration_key="registration",
            master_key=SecretKeys.of(MASTER_KEY),
            settings_key=SecretKeys.of(b"s" * 32),
            webhook_secret=SECRET,
        ),
        embedded=True,
        node="first",
        account=BUSINESS,
        link_address=("127.0.0.1", 0),
        advertised_host="127.0.0.1",
        metrics_address=("127.0.0.1", 0),
        network_tcp=network.tcp,
        network_http=network.http,
        shards=1,
        lease_seconds=30.0,
        heartbeat_seconds=0.1,
        job_queue_limit=1000,
        callback_queue_limit=1000,
        webhook_timeout=5.0,
        accept_any_2xx=False,
        require_pq=False,
        media_dir=tmp_path / "media",
        media_reserve=0,
        status_delay=0.0,
        outgoing_webhooks=OutgoingSettings(addresses.LOOPBACK),
        outgoing_media=OutgoingSettings(addresses.LOOPBACK),
        reengagement_window=False,
    )


WorldFactory = Callable[[], Awaitable[World]]


@pytest.fixture
async def world(
    database_factory: DatabaseFactory, tmp_path: Path, network: ScriptedNetwork, sink: Sink
) -> AsyncIterator[World]:
    """World in which nothing runs yet. Its webhook is set, all statuses are wanted, and retries come after 10 ms."""
    database = await database_factory("business")
    world = World(database, network, sink, make_settings(tmp_path, database, network))
    await world.configure(
        webhooks={"url": sink.url, "message": {"sent": True}},
        sent_status=True,
        callback_backoff_delay_ms=10,
        max_callback_backoff_delay_ms=20,
    )
    yield world
    await world.close()
