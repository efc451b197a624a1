"""Envelopes when the database is unavailable, or when the process dies at the worst moment."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from harness.mariadb import MariaDB
from network.services import NodeAddresses
from tests.conftest import DatabaseFactory
from tests.network.support import ALICE, BOB, CAROL, REGISTRATION_KEY, TIMEOUT, Client, Network, ids, stored
from tidings.aio import crashpoints
from tidings.wire import device


async def test_live_delivery_continues_during_a_database_outage_and_the_rest_waits(
    killable_network: tuple[Network, MariaDB],
) -> None:
    network, server = killable_network
    await network.start(embedded=True)
    await network.register(ALICE, BOB, CAROL)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    # The network has looked up both recipients before the outage.
    for number in (BOB, CAROL):
        alice.send(ALICE, number, f"hello-{number}")
    bob.ack(*await bob.deliveries(1))
    await alice.accepted(2)

    await asyncio.to_thread(server.kill9)
    live = alice.send(ALICE, BOB, "live")
    waiting = alice.send(ALICE, CAROL, "waiting")
    bob.ack(*await bob.deliveries(1))
    assert await alice.accepted(1) == [live]
    status, health = await network.request("GET", "/health")
    assert (status, health["database"]) == (503, "away")
    bob.link.send(device.Check(50, BOB, [ALICE]))
    await alice.nothing_came()

    await asyncio.to_thread(server.start)
    assert await alice.accepted(1) == [waiting]
    assert (await bob.next(device.Checked)).registered == [ALICE]
    carol = await network.connect(CAROL)
    assert ids(await carol.deliveries(2)) == [f"hello-{CAROL}", "waiting"]


async def test_a_login_during_an_outage_gets_its_response_afterwards(killable_network: tuple[Network, MariaDB]) -> None:
    network, server = killable_network
    await network.start(embedded=True)
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    alice.send(ALICE, BOB, "one")
    await alice.accepted(1)
    await asyncio.to_thread(server.kill9)
    bob = await network.connect()
    bob.link.send(device.Login(1, BOB, network.tokens[BOB]))
    await bob.nothing_came()
    await asyncio.to_thread(server.start)
    await bob.next(device.Ok)
    assert ids(await bob.deliveries(1)) == ["one"]


PROCESS = """
import asyncio, json, os, sys
from pathlib import Path
from network import services
from network.settings import BlobSettings, Settings
from tidings.aio import crashpoints
from tidings.secrets.process_secrets import NetworkSecrets
from tidings.installation.settings import DatabaseSettings

crashpoints.arm(os.environ["TIDINGS_CRASH_AT"])
settings = Settings(
    database=DatabaseSettings(sys.argv[1]),
    secrets=NetworkSecrets(registration_key=sys.argv[2]),
    data_dir=Path(sys.argv[3]),
    blobs=BlobSettings(directory=Path(sys.argv[3])),
    http_address=("127.0.0.1", 0),
    tcp_address=("127.0.0.1", 0),
)
ready = lambda addresses: print(json.dumps([addresses.http, addresses.tcp]), flush=True)
asyncio.run(services.run(settings, asyncio.Event(), ready))
"""


@pytest.mark.parametrize("point", [crashpoints.AFTER_STORE_BEFORE_ACCEPTED, crashpoints.AFTER_DEVICE_ACK_BEFORE_ROW])
async def test_an_envelope_resent_after_a_crash_at_any_point_is_delivered_once(
    database_factory: DatabaseFactory, point: str
) -> None:
    database = (await database_factory("network")).settings
    network = Network(database, "tcp")
    await network.start()
    await network.register(ALICE, BOB)
    await network.stop()

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESS, database.url, REGISTRATION_KEY, network.blobs.directory,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "TIDINGS_CRASH_AT": point},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            http, tcp = json.loads(await process.stdout.readline())
        addresses = NodeAddresses(tuple(http), tuple(tcp))
        alice, bob = await Client().open(addresses, "tcp"), await Client().open(addresses, "tcp")
        await alice.login(ALICE, network.tokens[ALICE])
        if point == crashpoints.AFTER_DEVICE_ACK_BEFORE_ROW:
            await bob.login(BOB, network.tokens[BOB])
            alice.send(ALICE, BOB, "one")
            bob.ack(*await bob.deliveries(1))
        else:
            alice.send(ALICE, BOB, "one")
        async with asyncio.timeout(TIMEOUT):
            await process.wait()
            await alice.closed.wait()
            await bob.closed.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    # The sender received no acceptance for its envelope, so it sends it again.
    await network.start()
    alice = await network.connect(ALICE)
    alice.send(ALICE, BOB, "one")
    await alice.accepted(1)
    bob = await network.connect(BOB)
    deliveries = await bob.deliveries(1)
    assert ids(deliveries) == ["one"]
    bob.ack(*deliveries)
    await bob.nothing_came()
    await network.remove()
    assert await stored(network) == []
