"""Several shards: each peer has one of them, and all see the same shared state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.real_network import RealNetwork, real_network
from tests.coreapp.signals import soon
from tests.coreapp.test_with_the_network import LivePhone
from tidings.storage.business import accounts, contacts, shards
from tidings.wire import connection as wire
from tidings.wire import core
from tidings.wire import device as frames
from tidings.wire.addresses import shard_of

COUNT = 4
# One number of each shard.
NUMBERS = [
    next(n for n in (f"1555011{i:04}" for i in range(1000)) if shard_of(n, COUNT) == shard) for shard in range(4)
]


@pytest.fixture
async def servers(world: World, database_factory: DatabaseFactory, tmp_path: Path) -> AsyncIterator[RealNetwork]:
    async with real_network(world, database_factory, tmp_path) as servers:
        yield servers
        await world.close()


async def start(world: World, servers: RealNetwork, node: str, owned: bool = True, **others: Any) -> Running:
    settings = {"shards": COUNT, "lease_seconds": 30.0, "heartbeat_seconds": 0.1, **others}
    return await world.start(node=node, network_tcp=servers.tcp, network_http=servers.http, owned=owned, **settings)


class ConnectedPhone(LivePhone):
    """Phone that stays connected until the network stops."""

    live: wire.Connection

    def opened(self, connection: wire.Connection) -> None:
        self.live = connection
        super().opened(connection)

    def received(self, connection: wire.Connection, frame: Any) -> None:
        if not isinstance(frame, frames.Closing):
            super().received(connection, frame)


async def a_phone(servers: RealNetwork, number: str) -> ConnectedPhone:
    phone = ConnectedPhone(number)
    phone.token = await servers.register(phone)
    await wire.connect(*servers.tcp, frames.FromNetwork, phone)
    return phone


async def live_phones(servers: RealNetwork) -> list[ConnectedPhone]:
    return [await a_phone(servers, number) for number in NUMBERS]


def owned_by(running: Running) -> list[int]:
    return running.node.shards.numbers


def spread_over(*running: Running) -> bool:
    return sorted(len(owned_by(one)) for one in running) == [COUNT // len(running)] * len(running)


async def connected(*running: Running) -> None:
    await soon(lambda: all(shard.link.connected for one in running for shard in one.node.shards))


async def test_each_peer_is_served_by_its_own_shard_in_one_process(world: World, servers: RealNetwork) -> None:
    phones = await live_phones(servers)
    running = await start(world, servers, "one")
    await soon(lambda: owned_by(running) == [0, 1, 2, 3])
    await connected(running)
    assert {contact.status for contact in await running.client.check(*NUMBERS)} == {"valid"}
    accepted = [await running.client.send(number, "hi") for number in NUMBERS for _ in range(3)]
    assert all(isinstance(response, core.Accepted) for response in accepted), accepted
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 12 * 4)
    for response in accepted:
        assert world.sink.statuses_of(response.id) == ["sent", "delivered", "read"]
        assert world.sink.statuses_of(f"echo-{response.id}") == ["received"]
    assert [len(phone.shown) for phone in phones] == [3, 3, 3, 3]
    # Event ids are unique across all shards.
    assert len({post.event_id for post in world.sink.posts}) == 48


async def test_a_second_process_gets_half_of_the_shards_and_returns_them_when_it_stops(
    world: World, servers: RealNetwork
) -> None:
    await live_phones(servers)
    first = await start(world, servers, "one")
    await soon(lambda: len(owned_by(first)) == COUNT)
    second = await start(world, servers, "two", owned=False)
    await soon(lambda: spread_over(first, second))
    assert 0 in owned_by(first), "the first shard stays where it is"
    await connected(first, second)
    assert {contact.status for contact in await first.client.check(*NUMBERS)} == {"valid"}
    for number in NUMBERS:
        owner, other = (first, second) if shard_of(number, COUNT) in owned_by(first) else (second, first)
        assert isinstance(await owner.client.send(number), core.Accepted)
        assert (await other.client.send(number)).code == 1018
    assert (await second.client.call(lambda n: core.CheckContacts(n, BUSINESS, ["1"]))).code == 1018
    for number in NUMBERS:
        owner, other = (first, second) if shard_of(number, COUNT) in owned_by(first) else (second, first)
        assert (await owner.client.check(number, of=number, force=True))[0].status == "valid"
        assert (await other.client.call(lambda n: core.CheckContacts(n, BUSINESS, ["1"], of=number))).code == 1018  # noqa: B023
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 16)

    started = asyncio.get_running_loop().time()
    await second.stopped()
    await soon(lambda: len(owned_by(first)) == COUNT)
    # Long before their leases of 30 s expire.
    assert asyncio.get_running_loop().time() - started < 20
    for number in NUMBERS:
        assert isinstance(await first.client.send(number), core.Accepted)
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 32)


async def test_contact_results_of_one_shard_are_visible_to_the_others_at_once(
    world: World, servers: RealNetwork
) -> None:
    running = await start(world, servers, "one")
    await connected(running)
    number = NUMBERS[3]
    # Its own shard finds that the number is not on the network, and caches that.
    assert (await running.client.send(number)).code == 1013
    await a_phone(servers, number)
    assert (await running.client.check(number, force=True))[0].status == "valid"
    async with world.database.reading() as connection:
        (kept,) = await contacts.list_checked(connection, BUSINESS, [number], since=contacts.EarliestChecks(0, 0))
    assert kept.registered, "on disk before the response"
    assert isinstance(await running.client.send(number), core.Accepted)


async def test_a_first_message_on_another_shard_s_pre_key_is_read_and_deletes_the_key(
    world: World, servers: RealNetwork
) -> None:
    running = await start(world, servers, "one")
    await connected(running)
    phones = await live_phones(servers)
    # As if the other shards had been opened before these keys were made.
    for shard in running.node.shards:
        if not shard.context.lease.is_first:
            for known in (shard.context.device.prekeys, shard.context.device.signed_prekeys):
                known.clear()
            shard.context.device.kyber_prekeys.clear()
    before = await one_time_ids(world)
    for phone in phones:
        bundle = (await running.shard.link.fetch_bundles([BUSINESS]))[BUSINESS]
        kind, body = phone.write(b'{"type":"text","text":{"body":"first"}}', bundle)
        phone.send(phone.live, 5, f"in-{phone.number}", kind, body)
    await world.sink.signals.until(
        lambda: all(world.sink.statuses_of(f"in-{number}") == ["received"] for number in NUMBERS)
    )
    assert len(before - await one_time_ids(world)) == len(phones)


async def one_time_ids(world: World) -> set[int]:
    async with world.database.reading() as connection:
        return {
            row.key_id for row in await accounts.list_prekeys(connection, BUSINESS) if row.kind == accounts.ONE_TIME
        }


async def test_a_new_registration_reopens_every_other_shard(world: World, servers: RealNetwork) -> None:
    first = await start(world, servers, "one")
    second = await start(world, servers, "two", owned=False)
    await soon(lambda: spread_over(first, second))
    exported = await first.client.call(lambda n: core.ExportKeys(n, BUSINESS, "password"))
    epochs = {shard.context.shard: shard.context.lease.epoch for shard in second.node.shards}
    assert epochs
    restored = await first.client.call(lambda n: core.RestoreKeys(n, BUSINESS, "password", exported.data))
    assert isinstance(restored, core.Done), restored
    await soon(
        lambda: (
            {s.context.shard for s in second.node.shards if s.context.lease.epoch > epochs[s.context.shard]}
            == set(epochs)
        )
    )
    token = first.shard.context.device.token
    assert {shard.context.device.token for shard in second.node.shards} == {token}
    await connected(first, second)


async def test_the_first_process_determines_the_number_of_shards(world: World, servers: RealNetwork) -> None:
    await start(world, servers, "one")
    async with world.database.reading() as connection:
        assert len(await shards.list_owners(connection)) == COUNT
    other = await world.start(
        node="two", network_tcp=servers.tcp, network_http=servers.http, shards=1, heartbeat_seconds=0.1, owned=False
    )
    await soon(lambda: len(owned_by(other)) == COUNT // 2)
