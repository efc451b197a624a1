"""Business as a device of the network: it sends texts and keeps what it receives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from handset.application import Action, DeviceEvent, ReceivedMessage
from handset.devices import keys
from handset.devices.context import FleetContext
from handset.devices.registration import DeviceRegistry
from handset.devices.row_sealer import RowSealer
from handset.fleet import Fleet
from tests import migrated
from tests.handset.conftest import HANDSET_KEY, SECRETS, LiveNetwork
from tests.handset.scripted import BUSINESS
from tidings.aio.clock import SystemClock
from tidings.client import transports
from tidings.client.http import NetworkApi
from tidings.installation.settings import DatabaseSettings
from tidings.storage.database import Database


class Recorder:
    """Application that replies to nothing and records everything."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.notices: list[DeviceEvent] = []
        self.fleet: Fleet | None = None
        self.http_url = ""
        self._changed = asyncio.Event()

    def actions(self, message: ReceivedMessage) -> Sequence[Action]:
        return ()

    def show(self, messages: Sequence[ReceivedMessage]) -> None:
        self.messages += messages
        self._changed.set()

    def list_shown(self, messages: Sequence[ReceivedMessage]) -> set[tuple[str, str]]:
        return set()

    def notify(self, event: DeviceEvent) -> None:
        self.notices.append(event)
        self._changed.set()

    def events(self, message_id: str) -> list[str]:
        """Return what happened to one of the business's messages, in order."""
        return [notice.kind for notice in self.notices if message_id in notice.refs]

    async def send(self, to: str, text: str) -> str:
        assert self.fleet is not None
        return await self.fleet.send(BUSINESS, to, text)

    async def until_registered(self, *numbers: str) -> None:
        """Query the network until all these numbers are registered."""
        assert self.fleet is not None
        device = self.fleet.devices[BUSINESS]
        async with asyncio.timeout(30):
            while len(await self.fleet.fetch_bundles(device, list(numbers))) < len(numbers):
                pass

    async def until(self, condition: Callable[[], bool], *, timeout: float = 30.0) -> None:
        async with asyncio.timeout(timeout):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def business(network: LiveNetwork, folder: Path) -> AsyncIterator[Recorder]:
    """Run a business that is registered and logged in."""
    await migrated.create_sqlite(folder / "business.db", "handset")
    database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{folder / 'business.db'}", pool_size=3), "handset")
    recorder = Recorder()
    stop = asyncio.Event()
    try:
        context = FleetContext("business", database, RowSealer(HANDSET_KEY), SystemClock())
        async with NetworkApi(network.http_url) as api:
            registry = DeviceRegistry(context, api)
            known = await registry.load()
            device = known.get(BUSINESS) or keys.new_device(BUSINESS)
            if device.token is None:
                key = SECRETS.registration_key
                await registry.register(device, one_time=20, kyber_one_time=0, registration_key=key)
        recorder.http_url = network.http_url
        recorder.fleet = Fleet(context, [device], recorder, dials=[transports.tcp(*network.tcp)])
        running = asyncio.create_task(recorder.fleet.run(stop))
        async with asyncio.timeout(30):
            await recorder.fleet.ready.wait()
        yield recorder
        stop.set()
        await running
    finally:
        stop.set()
        await database.close()
