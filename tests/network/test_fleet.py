"""Benchmark devices receive what they are sent over each transport, once and complete, and what they missed
while away."""

from __future__ import annotations

import pytest

from harness.fleet import Fleet
from harness.fleet_device import TCP, WS_JSON, WS_MSGPACK
from tests.network.conftest import Network

ALICE, BOB = "15550000001", "15550000002"
TIMEOUT = 30.0


@pytest.mark.parametrize("pair", [("tcp", "sqlite")])
@pytest.mark.parametrize("way", [TCP, WS_JSON, WS_MSGPACK])
async def test_a_fleet_receives_everything_once_including_what_it_missed_offline(network: Network, way: str) -> None:
    await network.start()
    for number in (ALICE, BOB):
        await network.register(number)
    fleet = Fleet()
    addresses = [network.addresses.tcp if way == TCP else network.addresses.http]
    devices = [(number, network.tokens[number]) for number in (ALICE, BOB)]
    await fleet.open(devices, addresses, transport=way, seconds=TIMEOUT)
    try:
        await fleet.do_disconnect([BOB])
        await fleet.do_until_fewer(2, TIMEOUT)
        said = await fleet.do_send(routes=[(ALICE, BOB)], rate=0, count=20, size=5000)
        assert (said["sent"], said["refused"]) == (20, {})
        assert (await fleet.do_counts())["delivered"] == 0
        await fleet.do_reconnect()
        await fleet.do_until_attached(2, TIMEOUT)
        said = await fleet.do_send(routes=[(ALICE, BOB), (BOB, ALICE)], rate=0, count=200, size=70_000)
        assert said["refused"] == {}
        counts = await fleet.do_until_delivered(220, TIMEOUT)
    finally:
        await fleet.do_close()
    assert counts == {"attached": 2, "delivered": 220, "repeats": 0, "wrong": 0, "others": 0, "failures": {}}
    assert len(fleet.times) == 220
