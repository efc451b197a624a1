"""Coreapp, network and handset: whichever side loses sessions, each message arrives exactly once, in both
directions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import sqlalchemy as sa

from handset.application import Action, DeviceEvent, ReceivedMessage, SendReceipt
from handset.devices import keys
from handset.devices.context import FleetContext
from handset.devices.device import Device
from handset.devices.registration import DeviceRegistry
from handset.devices.row_sealer import RowSealer
from handset.fleet import Fleet
from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.real_network import RealNetwork, real_network
from tests.coreapp.signals import TIMEOUT, Signals
from tidings.aio.clock import SystemClock
from tidings.client import transports
from tidings.client.http import NetworkApi
from tidings.storage.business import sessions
from tidings.storage.database import Database
from tidings.storage.handset.sessions import sessions as handset_sessions
from tidings.wire import core
from tidings.wire import device as wire

NUMBER = "15550110001"


class Person:
    """Recipient who reads everything. The list of shown messages outlives the fleet."""

    def __init__(self, network: RealNetwork, database: Database) -> None:
        self._network = network
        self.database = database
        self._context = FleetContext("person", database, RowSealer(bytes(32)), SystemClock())
        self._device: Device | None = None
        self.signals = Signals()
        self.shown: list[tuple[str, str]] = []
        self.notices: list[DeviceEvent] = []

    def actions(self, message: ReceivedMessage) -> Sequence[Action]:
        return (SendReceipt(wire.DELIVERED), SendReceipt(wire.READ))

    def show(self, messages: Sequence[ReceivedMessage]) -> None:
        self.shown += [(message.id, message.text) for message in messages]
        self.signals.changed()

    def list_shown(self, messages: Sequence[ReceivedMessage]) -> set[tuple[str, str]]:
        return {(m.number, m.id) for m in messages if (m.id, m.text) in self.shown}

    def notify(self, event: DeviceEvent) -> None:
        self.notices.append(event)
        self.signals.changed()

    async def enrol(self) -> None:
        async with NetworkApi(self._network.http) as api:
            registry = DeviceRegistry(self._context, api)
            self._device = keys.new_device(NUMBER)
            await registry.register(
                self._device, one_time=20, kyber_one_time=5, registration_key=self._network.registration_key
            )

    async def lose_sessions(self) -> None:
        async with self.database.transaction() as connection:
            await connection.execute(sa.delete(handset_sessions))

    @contextlib.asynccontextmanager
    async def online(self) -> AsyncIterator[Fleet]:
        assert self._device is not None
        fleet = Fleet(self._context, [self._device], self, dials=[transports.tcp(*self._network.tcp)])
        stop = asyncio.Event()
        task = asyncio.create_task(fleet.run(stop))
        try:
            async with asyncio.timeout(TIMEOUT):
                await fleet.ready.wait()
            yield fleet
        finally:
            stop.set()
            await task


class Scene:
    """Coreapp, network and recipient of a test."""

    def __init__(self, world: World, network: RealNetwork, person: Person) -> None:
        self.world = world
        self.network = network
        self.person = person
        self._nodes = 0

    async def start(self) -> Running:
        self._nodes += 1
        running = await self.world.start(
            node=f"node-{self._nodes}", network_tcp=self.network.tcp, network_http=self.network.http
        )
        contacts = await running.client.check(NUMBER)
        while contacts[0].status == "failed":
            # The Coreapp has not logged in yet.
            contacts = await running.client.check(NUMBER)
        return running

    async def send(self, running: Running, text: str) -> str:
        response = await running.client.send(NUMBER, text)
        assert isinstance(response, core.Accepted), response
        return response.id

    async def until_shown(self, *texts: str) -> None:
        await self.person.signals.until(lambda: {*texts} <= {text for _, text in self.person.shown})

    async def until_heard(self, *texts: str) -> None:
        await self.world.sink.signals.until(lambda: {*texts} <= set(self.heard()))

    async def until_status(self, message_id: str, *statuses: str) -> None:
        await self.world.sink.signals.until(lambda: self.world.sink.statuses_of(message_id) == [*statuses])

    def heard(self) -> list[str]:
        """Return the texts that the webhook got, each event once."""
        posts = {post.event_id: post.body for post in self.world.sink.taken() if "messages" in post.body}
        return [body["messages"][0]["text"]["body"] for body in posts.values()]

    def errors(self) -> list[str]:
        return [str(post.body) for post in self.world.sink.taken() if "errors" in post.body]

    async def forget(self) -> None:
        """Delete the Coreapp's sessions while it is down."""
        async with self.world.database.transaction() as connection:
            await sessions.clear(connection, BUSINESS)


@contextlib.asynccontextmanager
async def scene(world: World, database_factory: DatabaseFactory, folder: Path) -> AsyncIterator[Scene]:
    async with real_network(world, database_factory, folder) as network:
        person = Person(network, await database_factory("handset"))
        await person.enrol()
        yield Scene(world, network, person)
        await world.close()


async def acquainted(made: Scene, running: Running, fleet: Fleet) -> None:
    """Exchange a message in each direction."""
    await made.send(running, "hello")
    await made.until_shown("hello")
    await fleet.send(NUMBER, BUSINESS, "hello yourself")
    await made.until_heard("hello yourself")


async def test_messages_after_the_coreapp_lost_its_sessions_arrive_once(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    async with scene(world, database_factory, tmp_path) as made, made.person.online() as fleet:
        running = await made.start()
        await acquainted(made, running, fleet)
        await running.stopped()
        await made.forget()
        running = await made.start()
        texts = [f"first {n}" for n in range(5)]
        for text in texts:
            await fleet.send(NUMBER, BUSINESS, text)
        await made.until_heard(*texts)
        response = await made.send(running, "and back")
        await made.until_status(response, "sent", "delivered", "read")
        await fleet.send(NUMBER, BUSINESS, "after")
        await made.until_heard("after")
        assert sorted(made.heard()) == sorted(["hello yourself", *texts, "after"])
        assert made.errors() == []


async def test_messages_sent_while_the_coreapp_was_stopped_and_lost_sessions_arrive_once(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    async with scene(world, database_factory, tmp_path) as made, made.person.online() as fleet:
        running = await made.start()
        await acquainted(made, running, fleet)
        await running.stopped()
        texts = [f"away {n}" for n in range(30)]
        for text in texts:
            await fleet.send(NUMBER, BUSINESS, text)
        await fleet.wait_until_sent()
        await made.forget()
        await made.start()
        await made.until_heard(*texts)
        assert sorted(made.heard()) == sorted(["hello yourself", *texts])
        assert made.errors() == []


async def test_messages_to_a_handset_that_lost_its_sessions_are_shown_once(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    async with scene(world, database_factory, tmp_path) as made:
        running = await made.start()
        async with made.person.online() as fleet:
            await acquainted(made, running, fleet)
        ids = {text: await made.send(running, text) for text in [f"lost {n}" for n in range(5)]}
        await made.person.lose_sessions()
        async with made.person.online() as fleet:
            await made.until_shown(*ids)
            for id in ids.values():
                await made.until_status(id, "sent", "delivered", "read")
            # The repaired session works in both directions.
            await fleet.send(NUMBER, BUSINESS, "thanks")
            await made.until_heard("thanks")
        shown = [entry for entry in made.person.shown if entry[1] in ids]
        assert sorted(shown) == sorted((id, text) for text, id in ids.items())
        assert made.errors() == []


async def test_messages_arrive_once_after_both_sides_lost_their_sessions(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    async with scene(world, database_factory, tmp_path) as made:
        running = await made.start()
        async with made.person.online() as fleet:
            await acquainted(made, running, fleet)
            await running.stopped()
            for n in range(3):
                await fleet.send(NUMBER, BUSINESS, f"to the business {n}")
            await fleet.wait_until_sent()
        await made.forget()
        await made.person.lose_sessions()
        running = await made.start()
        ids = [await made.send(running, f"to the person {n}") for n in range(3)]
        async with made.person.online() as fleet:
            await made.until_heard(*[f"to the business {n}" for n in range(3)])
            await made.until_shown(*[f"to the person {n}" for n in range(3)])
            for id in ids:
                await made.until_status(id, "sent", "delivered", "read")
        assert len(made.heard()) == 4
        assert len(made.person.shown) == 4


async def test_repeated_kills_during_session_repair_lose_and_repeat_nothing(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    async with scene(world, database_factory, tmp_path) as made, made.person.online() as fleet:
        running = await made.start()
        await acquainted(made, running, fleet)
        await running.stopped()
        await made.forget()
        texts = [f"text {n}" for n in range(12)]
        for text in texts:
            await fleet.send(NUMBER, BUSINESS, text)
        for moment in range(6):
            running = await made.start()
            await soon_after(moment, lambda: len(made.heard()) > 1)
            await running.killed()
        await made.start()
        await made.until_heard(*texts)
        assert sorted(made.heard()) == sorted(["hello yourself", *texts])
        assert made.errors() == []


async def soon_after(turns: int, done: Callable[[], bool]) -> None:
    """Wait for 20 × `turns`² event-loop iterations, or until `done()`."""
    for _ in range(turns * turns * 20):
        if done():
            return
        await asyncio.sleep(0)
