"""Fleet on a scripted network, and a store with scripted failures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from handset.application import Action, DeviceEvent, ReceivedMessage
from handset.devices import keys
from handset.devices.context import FleetContext, FleetLimits
from handset.devices.device import Device, DeviceObserver
from handset.devices.row_sealer import RowSealer
from handset.fleet import Fleet
from handset.robots import behaviours
from handset.robots.behaviours import behaviour_of
from handset.shown_log import ShownLog
from tests import migrated
from tests.handset.scripted import ScriptedNetwork, make_device
from tidings.aio.clock import Clock, SystemClock
from tidings.client import transports
from tidings.client.keys import KeySet
from tidings.installation.settings import DatabaseSettings
from tidings.storage.database import Database
from tidings.storage.handset import devices, inbox, outbox, prekeys

SEALER, LIMITS = RowSealer(bytes(32)), FleetLimits()


class FailingDatabase(Database):
    """Database that loses its connection before or after the commit of scripted transactions."""

    def __init__(self, path: Path) -> None:
        super().__init__(DatabaseSettings(f"sqlite+aiosqlite:///{path}", pool_size=3), "handset")
        self.failures: list[str] = []  # `ok`, `before` or `after` for each next transaction

    @contextlib.asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncIterator[AsyncConnection]:
        fate = self.failures.pop(0) if self.failures else "ok"
        async with super().transaction(**options) as connection:
            yield connection
            if fate == "before":
                raise ConnectionError("lost before the commit")
        if fate == "after":
            raise ConnectionError("lost after the commit")


class Phone:
    """Application that behaves as its numbers determine. The list of what it has shown outlives the fleet, like a
    screen."""

    def __init__(self, log: ShownLog) -> None:
        self._log = log
        self.shown: list[ReceivedMessage] = []
        self.notices: list[DeviceEvent] = []
        self.changed = asyncio.Event()

    def actions(self, message: ReceivedMessage) -> Sequence[Action]:
        return behaviours.actions(behaviour_of(message.number), message)

    def show(self, messages: Sequence[ReceivedMessage]) -> None:
        self._log.append(messages)
        self.shown += messages
        self.changed.set()

    def list_shown(self, messages: Sequence[ReceivedMessage]) -> set[tuple[str, str]]:
        return self._log.list_shown(messages)

    def notify(self, event: DeviceEvent) -> None:
        self.notices.append(event)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Bench(DeviceObserver):
    """Everything that a fleet test needs, in one folder."""

    def __init__(self, folder: Path, *, clock: Clock | None = None, limits: FleetLimits = LIMITS) -> None:
        self.folder = folder
        self.limits = limits
        self.clock: Clock = clock or SystemClock()
        self.database = FailingDatabase(folder / "handset.db")
        self.network = ScriptedNetwork()
        self.log_path = folder / "shown.jsonl"
        self.log = ShownLog(self.log_path, self.clock)
        self.phone = Phone(self.log)
        self.keys: dict[str, KeySet] = {}
        self.low: list[tuple[str, int, int]] = []
        self.refused: list[str] = []
        self.address = ("127.0.0.1", 0)

    async def open(self, *numbers: str) -> None:
        await migrated.create_sqlite(self.folder / "handset.db", "handset")
        self.address = await self.network.start()
        async with self.database.transaction() as connection:
            for number in numbers:
                device, self.keys[number] = make_device(number)
                await devices.save(connection, [SEALER.device_row(device, "fleet")])
                await prekeys.add(
                    connection, keys.rows(SEALER, number, self.keys[number], int(self.clock.now() * 1000))
                )

    def prekeys_low(self, device: Device, remaining: int, kyber_remaining: int) -> None:
        self.low.append((device.number, remaining, kyber_remaining))

    def unauthorized(self, device: Device) -> None:
        self.refused.append(device.number)

    async def close(self) -> None:
        await self.network.close()
        await self.database.close()
        self.log.close()

    async def devices(self) -> list[Device]:
        async with self.database.reading() as connection:
            return [SEALER.device(row) for row in await devices.list_devices(connection, "fleet")]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Fleet]:
        """Run a fleet loaded from the store, and stop it in an orderly way at the end."""
        context = FleetContext("fleet", self.database, SEALER, self.clock, self.limits)
        fleet = Fleet(context, await self.devices(), self.phone, dials=[transports.tcp(*self.address)])
        fleet.observe(self)
        stop = asyncio.Event()
        task = asyncio.create_task(fleet.run(stop))
        waiter = asyncio.create_task(fleet.ready.wait())
        await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED, timeout=10)
        waiter.cancel()
        try:
            assert fleet.ready.is_set(), task
            yield fleet
        finally:
            stop.set()
            await task

    async def outbox(self) -> list[outbox.OutboxRow]:
        async with self.database.reading() as connection:
            return await outbox.list_envelopes(connection, "fleet")

    async def inbox(self) -> list[inbox.InboxRow]:
        async with self.database.reading() as connection:
            return await inbox.list_messages(connection, "fleet", 0, 1000)


@contextlib.asynccontextmanager
async def bench(
    folder: Path, *numbers: str, clock: Clock | None = None, limits: FleetLimits = LIMITS
) -> AsyncIterator[Bench]:
    """Bench with registered devices of these numbers."""
    made = Bench(folder, clock=clock, limits=limits)
    await made.open(*numbers)
    try:
        yield made
    finally:
        await made.close()
