"""Test numbers whose first registration fails, and numbers that another fleet of the store has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest import mock

import pytest

from handset import errors
from handset.devices.context import FleetContext
from handset.devices.registration import DeviceRegistry
from handset.robots.recipients import TestRecipients
from handset.robots.registrar import RobotRegistrar
from handset.typing_peers import TypingPeers
from tests.handset.harness import SEALER, bench
from tests.manual_clock import ManualClock
from tidings.client.errors import NetworkRefusal
from tidings.storage.handset import devices
from tidings.wire import recipients

ROBOT, NUMBER = "15550110001", "15550350001"


async def test_a_test_number_that_is_enrolled_at_the_second_attempt_has_its_identity_after_a_restart(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, ROBOT) as world, world.running() as fleet:
        api = mock.Mock()
        api.register_many = mock.AsyncMock(side_effect=[NetworkRefusal("overloaded"), {NUMBER: "token"}])
        context = FleetContext("fleet", world.database, SEALER, world.clock)
        registrar = RobotRegistrar(DeviceRegistry(context, api), "k" * 32, one_time=1, block="")
        known = TestRecipients(
            context, fleet, registrar, api=api, typing=TypingPeers(ManualClock()), offline=frozenset()
        )
        call = recipients.EnrolRecipient(NUMBER)
        assert isinstance(await known.respond(call), recipients.RecipientFailure)
        assert isinstance(await known.respond(call), recipients.RecipientDone)
        async with world.database.reading() as connection:
            row = await devices.find(connection, NUMBER)
        assert row is not None
        # The network has the identity of the running device.
        assert SEALER.device(row).identity.public == fleet.devices[NUMBER].identity.public


async def test_robots_leave_the_device_of_another_fleet_alone(tmp_path: Path) -> None:
    async with bench(tmp_path, ROBOT, NUMBER) as world:
        registrar = RobotRegistrar(
            DeviceRegistry(FleetContext("robots", world.database, SEALER, world.clock), mock.Mock()),
            "k" * 32,
            one_time=1,
            block="",
        )
        with pytest.raises(errors.AlreadyRunning, match=rf"^\+{ROBOT} belongs to the fleet of this data directory$"):
            await registrar.register_all(["15550110000", ROBOT, NUMBER], asyncio.Event())
        async with world.database.reading() as connection:
            assert await devices.list_devices(connection, "robots") == []
