"""Pre-keys of recipients: lasting ones replaced weekly, old ones kept for a month, ids of 24 bits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from handset.devices import keys
from handset.devices.context import FleetContext
from handset.devices.device import Device
from handset.devices.prekey_rotation import PreKeyRotation
from handset.devices.registration import KEPT_MS, ROTATION_MS, DeviceRegistry
from handset.devices.row_sealer import RowSealer
from tests.conftest import DatabaseFactory
from tests.handset.conftest import HANDSET_KEY, SECRETS, LiveNetwork
from tests.manual_clock import ManualClock
from tidings import e2ee
from tidings.client.errors import NetworkUnavailable
from tidings.client.http import NetworkApi
from tidings.storage.base_keys import BaseKey
from tidings.storage.database import Database
from tidings.storage.handset import prekeys
from tidings.storage.handset.base_keys import BASE_KEYS

NUMBERS = [f"1555011000{n}" for n in range(3)]
WEEK, MONTH = ROTATION_MS / 1000, KEPT_MS / 1000


class Fleet:
    """Some registered devices, and the service that rotates their keys."""

    def __init__(self, database: Database, api: NetworkApi) -> None:
        self.database = database
        self.clock = ManualClock(time.time())
        self.context = FleetContext("test", database, RowSealer(HANDSET_KEY), self.clock)
        self.registry = DeviceRegistry(self.context, api)
        self.devices = {number: keys.new_device(number) for number in NUMBERS}
        self.rotation = PreKeyRotation(self.registry, self.devices)
        self.api = api

    async def pass_(self) -> int:
        return await self.rotation.run_once(asyncio.Event())

    async def kept(self, device: Device, kind: str) -> list[int]:
        async with self.database.reading() as connection:
            rows = await connection.execute(
                sa.select(prekeys.prekeys.c.key_id)
                .where(prekeys.prekeys.c.number == device.number, prekeys.prekeys.c.kind == kind)
                .order_by(prekeys.prekeys.c.created_at, prekeys.prekeys.c.key_id)
            )
            return list(rows.scalars())


@pytest.fixture
async def fleet(live_network: LiveNetwork, database_factory: DatabaseFactory) -> AsyncIterator[Fleet]:
    database = await database_factory("handset")
    async with NetworkApi(live_network.http_url) as api:
        fleet = Fleet(database, api)
        await fleet.registry.register_many(
            list(fleet.devices.values()),
            one_time=3,
            registration_key=SECRETS.registration_key,
            stop=asyncio.Event(),
        )
        yield fleet


async def count_base_keys(fleet: Fleet, device: Device) -> int:
    async with fleet.database.reading() as connection:
        return await BASE_KEYS.count(connection, device.number)


async def test_lasting_keys_are_replaced_weekly_and_deleted_a_month_later(fleet: Fleet) -> None:
    assert await fleet.pass_() == 0
    device = fleet.devices[NUMBERS[0]]
    first = (await fleet.kept(device, prekeys.SIGNED), await fleet.kept(device, prekeys.KYBER_LAST))
    fleet.clock.advance(WEEK + 1)
    assert await fleet.pass_() == len(NUMBERS)
    assert await fleet.pass_() == 0
    assert len(await fleet.kept(device, prekeys.SIGNED)) == 2
    async with fleet.database.transaction() as connection:
        # Base key of a first message that used the first signed pre-key.
        await BASE_KEYS.add(connection, [BaseKey(device.number, "a" * 64, "15550000000", first[0][0])])
    for _ in range(4):
        fleet.clock.advance(WEEK + 1)
        await fleet.pass_()
    assert first[0][0] in await fleet.kept(device, prekeys.SIGNED)
    assert await count_base_keys(fleet, device) == 1
    fleet.clock.advance(WEEK + 1)
    await fleet.pass_()
    assert first[0][0] not in await fleet.kept(device, prekeys.SIGNED)
    assert await count_base_keys(fleet, device) == 0
    assert first[1][0] not in await fleet.kept(device, prekeys.KYBER_LAST)
    # One-time pre-keys that the network still has are kept.
    assert await fleet.kept(device, prekeys.ONE_TIME) == (await fleet.api.count_keys(device)).prekey_ids


async def test_a_rotation_that_fails_before_its_upload_is_repeated(fleet: Fleet) -> None:
    fleet.clock.advance(WEEK + 1)
    async with NetworkApi("http://127.0.0.1:1") as away:
        rotation = PreKeyRotation(DeviceRegistry(fleet.context, away), fleet.devices)
        with pytest.raises(NetworkUnavailable):
            await rotation.run_once(asyncio.Event())
    device = fleet.devices[NUMBERS[0]]
    assert len(await fleet.kept(device, prekeys.SIGNED)) == 2
    assert await fleet.pass_() == len(NUMBERS)
    assert len(await fleet.kept(device, prekeys.SIGNED)) == 3


async def test_a_device_refused_by_the_network_does_not_delay_others(fleet: Fleet) -> None:
    fleet.devices[NUMBERS[0]].token = "void"
    fleet.clock.advance(WEEK + 1)
    assert await fleet.pass_() == len(NUMBERS) - 1
    assert await fleet.pass_() == 0


async def test_key_ids_wrap_at_24_bits_and_skip_those_in_use(fleet: Fleet) -> None:
    device = fleet.devices[NUMBERS[0]]
    kept = device.next_key_id
    device.next_key_id = e2ee.MAX_KEY_ID - 1
    await fleet.registry.refill([(device, 4, 0)])
    ids = (await fleet.api.count_keys(device)).prekey_ids
    assert ids is not None
    assert ids[-2:] == [e2ee.MAX_KEY_ID - 1, e2ee.MAX_KEY_ID]
    assert device.next_key_id == kept + 2
