"""A login reads what the first envelope for its device needs, and remembers it once the token is verified."""

from __future__ import annotations

import dataclasses

import pytest

from network.directory import logins
from network.directory.directory import Directory
from network.settings import DeviceRateLimits
from tests.conftest import DatabaseFactory
from tests.storage.test_directory import ALICE, BOB, registration
from tidings.aio.clock import SystemClock
from tidings.storage.network import directory as table

TOKEN = logins.make_token()


@pytest.fixture
async def devices(database_factory: DatabaseFactory) -> Directory:
    """Directory in which Alice is registered and blocks Bob."""
    database = await database_factory("network")
    async with database.transaction() as connection:
        device = dataclasses.replace(registration(ALICE), token_hash=logins.digest(TOKEN))
        await table.register(connection, [device])
        await table.block(connection, ALICE, BOB)
    return Directory(database, DeviceRateLimits(), SystemClock())


async def test_a_verified_login_remembers_whom_the_device_blocks(devices: Directory) -> None:
    assert await devices.logins.verify(ALICE, TOKEN, "192.0.2.1") is not None
    assert devices.recipients.get(ALICE) == {BOB}


async def test_a_login_with_another_token_remembers_nothing(devices: Directory) -> None:
    assert await devices.logins.verify(ALICE, logins.make_token(), "192.0.2.1") is None
    assert devices.recipients.get(ALICE) is None
