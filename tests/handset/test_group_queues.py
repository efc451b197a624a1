"""Queues of a fleet's groups: messages that the network refused as stale, and requests for keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from unittest import mock

import pytest

from handset.devices import keys
from handset.devices.context import FleetContext
from handset.devices.device import Device
from handset.groups import FleetGroups
from tests.handset.harness import SEALER
from tests.manual_clock import ManualClock
from tidings.client.errors import NetworkUnavailable
from tidings.storage.handset.outbox import OutboxRow
from tidings.wire.device import GROUP

ADA, BOB, CID = "15550000001", "15550000002", "15550000003"
LUNCH, DINNER = "15550000001-1", "15550000001-2"


class PlayedGroups(FleetGroups):
    """Groups whose messages and keys go to a list, except those for `away`."""

    away: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.done: list[str] = []
        self.begun = asyncio.Event()

    async def _send_again(self, device: Device, envelope: OutboxRow) -> None:
        await self._play(envelope.group_id, envelope.id)

    async def _send_key(self, device: Device, peer: str, group: str) -> None:
        await self._play(peer, peer)

    async def _play(self, to: str, what: str) -> None:
        self.begun.set()
        if "never" in self.away:
            await asyncio.Event().wait()
        if to in self.away:
            raise NetworkUnavailable("the key could not be distributed")
        self.done.append(what)


@pytest.fixture
def groups() -> PlayedGroups:
    context = FleetContext("test", mock.Mock(), SEALER, ManualClock())
    return PlayedGroups(context, {}, mock.Mock(), network=mock.Mock())


def put(groups: FleetGroups, *messages: tuple[str, str]) -> None:
    device = keys.new_device(ADA)
    for position, (group, id_) in enumerate(messages, 1):
        row = OutboxRow("test", position, ADA, "", id_, GROUP, 0, b"", (), group, 1, b"draft")
        groups.stale(device, row)


async def test_a_group_that_cannot_be_reached_does_not_hold_up_others(groups: PlayedGroups) -> None:
    groups.away = (LUNCH, BOB)
    put(groups, (LUNCH, "one"), (DINNER, "two"), (LUNCH, "three"), (DINNER, "four"))
    device = keys.new_device(ADA)
    groups.queue_key_exchange((), [(device, BOB, LUNCH), (device, CID, LUNCH)])
    for _ in range(2):
        assert not await groups._run_once()
    assert groups.done == ["two", "four", CID]
    groups.away = ()
    assert await groups._run_once()
    assert groups.done == ["two", "four", CID, "one", "three", BOB]


async def test_the_queues_end_at_once_although_the_network_does_not_answer(groups: PlayedGroups) -> None:
    groups.away = ("never",)
    put(groups, (LUNCH, "one"))
    stop = asyncio.Event()
    running = asyncio.create_task(groups.run(stop))
    async with asyncio.timeout(30):
        await groups.begun.wait()
        stop.set()
        await running
