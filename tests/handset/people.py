"""People with a phone each, on a real network: they read what arrives, and their phones can be switched off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from handset.application import Action, DeviceEvent, ReceivedMessage
from handset.devices import keys
from handset.devices.context import FleetContext, FleetLimits
from handset.devices.registration import DeviceRegistry
from handset.devices.row_sealer import RowSealer
from handset.fleet import Fleet
from handset.robots import behaviours
from tests import migrated
from tests.handset.conftest import HANDSET_KEY, SECRETS, LiveNetwork
from tests.handset.harness import LIMITS, FailingDatabase
from tidings.aio.clock import SystemClock
from tidings.client import transports
from tidings.client.http import NetworkApi
from tidings.wire.content import encode_text

ADA, BOB, CID, DOT = "15550000001", "15550000002", "15550000003", "15550000004"


class Person:
    """Person whose list of seen messages outlives the phone's process."""

    def __init__(self, number: str, network: LiveNetwork, folder: Path) -> None:
        self.number = number
        self.messages: list[ReceivedMessage] = []
        self.notices: list[DeviceEvent] = []
        self._network = network
        self._folder = folder
        self._changed = asyncio.Event()
        self._fleet: Fleet | None = None
        self._store: FailingDatabase | None = None

    @property
    def store(self) -> FailingDatabase:
        """Database of the phone while it is on."""
        assert self._store is not None
        return self._store

    @property
    def fleet(self) -> Fleet:
        assert self._fleet is not None
        return self._fleet

    @property
    def database(self) -> FailingDatabase:
        return FailingDatabase(self._folder / f"{self.number}.db")

    @contextlib.asynccontextmanager
    async def phone(self, *, fresh: bool = False, limits: FleetLimits = LIMITS) -> AsyncIterator[Fleet]:
        """Run the phone, logged in.

        fresh: True for a new device, with another identity and an empty store.
        """
        if fresh:
            (self._folder / f"{self.number}.db").unlink(missing_ok=True)
        database, stop = self.database, asyncio.Event()
        await migrated.create_sqlite(self._folder / f"{self.number}.db", "handset")
        sealer = RowSealer(HANDSET_KEY)
        try:
            async with NetworkApi(self._network.http_url) as api:
                context = FleetContext("phone", database, sealer, SystemClock(), limits)
                registry = DeviceRegistry(context, api)
                device = (await registry.load()).get(self.number) or keys.new_device(self.number)
                if device.token is None:
                    key = SECRETS.registration_key
                    await registry.register(device, one_time=20, kyber_one_time=0, registration_key=key)
                dials = [transports.tcp(*self._network.tcp)]
                fleet = Fleet(context, [device], self, dials=dials, api=api)
                running = asyncio.create_task(fleet.run(stop))
                self._fleet, self._store = fleet, database
                async with asyncio.timeout(30):
                    await fleet.ready.wait()
                try:
                    yield fleet
                finally:
                    stop.set()
                    await running
        finally:
            self._fleet = self._store = None
            await database.close()

    async def write(self, group: str, text: str) -> str:
        return await self.fleet.groups.send(self.number, group, encode_text(text))

    async def until_read(self, *texts: str) -> None:
        """Wait until exactly these texts have arrived, each once, in this order."""
        await self.until(lambda: len(self.messages) >= len(texts))
        assert [message.text for message in self.messages] == list(texts)

    async def until_notified(self, change: str, *numbers: str) -> None:
        """Wait until the network has notified the phone of this change of a group."""
        await self.until(
            lambda: any(n.kind == "group_changed" and n.detail == change and n.refs == numbers for n in self.notices)
        )

    def events(self, message_id: str) -> list[tuple[str, str]]:
        """Return (peer, kind) of the notices about one of the person's messages."""
        return [(notice.peer, notice.kind) for notice in self.notices if message_id in notice.refs]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    # Methods that the phone calls.

    def actions(self, message: ReceivedMessage) -> Sequence[Action]:
        return behaviours.actions(None, message)

    def show(self, messages: Sequence[ReceivedMessage]) -> None:
        self.messages += messages
        self._changed.set()

    def list_shown(self, messages: Sequence[ReceivedMessage]) -> set[tuple[str, str]]:
        return {(message.number, message.id) for message in self.messages}

    def notify(self, event: DeviceEvent) -> None:
        self.notices.append(event)
        self._changed.set()


async def meet(creator: Person, *others: Person) -> str:
    """Create a group that the others join, and return its id. All phones are on."""
    group = (await creator.fleet.groups.create(creator.number, "Lunch")).id
    code = await creator.fleet.groups.get_code(creator.number, group)
    for other in others:
        await other.fleet.groups.join(other.number, f"https://example.org/{code}")
        await creator.until_notified("joined", other.number)
    return group
