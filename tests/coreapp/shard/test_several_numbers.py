"""One Coreapp serves several numbers, each with a separate device, queue, settings and requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from coreapp import webhook_secrets
from coreapp.errors import ChangeRefused
from harness import metrics, polling
from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.real_network import RealNetwork, real_network
from tests.coreapp.shard.test_several_shards import ConnectedPhone, start
from tests.coreapp.signals import soon
from tests.coreapp.sink import SECRET, Sink
from tests.coreapp.webhook.cloud.test_cloud_webhooks import APP, receiving, subscribe
from tidings.storage.business import (
    accounts,
    application_settings,
    changes,
    layouts,
    number_removal,
    numbers,
    shards,
)
from tidings.wire import codes, core
from tidings.wire import connection as wire
from tidings.wire import device as frames
from tidings.wire.addresses import shard_of
from tidings.wire.cloud import wamid

SECOND = "15550000001"
PEER = "15550110007"


@pytest.fixture
async def servers(world: World, database_factory: DatabaseFactory, tmp_path: Path) -> AsyncIterator[RealNetwork]:
    async with real_network(world, database_factory, tmp_path) as servers:
        yield servers
        await world.close()


class Recorder(ConnectedPhone):
    """Phone that acknowledges every envelope without reading it, so that any number of businesses may write to it."""

    def __init__(self, number: str) -> None:
        super().__init__(number)
        self.senders: set[str] = set()

    def received(self, connection: wire.Connection, frame: Any) -> None:
        if isinstance(frame, frames.Deliver):
            connection.send(frames.Ack([frame.n]))
            self.senders.add(frame.sender)


async def a_phone(servers: RealNetwork) -> Recorder:
    phone = Recorder(PEER)
    phone.token = await servers.register(phone)
    await wire.connect(*servers.tcp, frames.FromNetwork, phone)
    return phone


def posted(sink: Sink) -> str:
    return str([post.body for post in sink.posts])


async def add(world: World, number: str = SECOND, *, waba_of: str = "") -> numbers.BusinessNumber:
    async with world.database.transaction() as connection:
        await numbers.add_first(connection, BUSINESS)
        return await numbers.add(connection, number, waba_of=waba_of)


async def running_with_two(world: World, servers: RealNetwork, shard_count: int = 1, *, waba_of: str = "") -> Running:
    """Return a Coreapp that has found a second number while it ran, and serves both."""
    running = await start(world, servers, "a", shards=shard_count)
    await add(world, waba_of=waba_of)
    wanted = [*range(shard_count), *range(32, 32 + shard_count)]
    await soon(lambda: running.node.shards.numbers == wanted)
    await soon(lambda: all(shard.link.connected for shard in running.node.shards))
    return running


async def send(running: Running, account: str, to: str, text: str) -> core.Accepted:
    content = b'{"type":"text","text":{"body":"%s"}}' % text.encode()
    response = await running.client.call(lambda n: core.AcceptMessage(n, account, to, "text", content))
    assert isinstance(response, core.Accepted), response
    return response


async def test_a_number_added_at_run_time_is_registered_and_sends_as_its_own_device(
    world: World, servers: RealNetwork
) -> None:
    running = await running_with_two(world, servers)
    async with world.database.reading() as connection:
        assert await accounts.is_registered(connection, BUSINESS)
        assert await accounts.is_registered(connection, SECOND)
        owners = await shards.list_owners(connection)
    assert [(owner.shard, owner.node) for owner in owners] == [(0, "a"), (32, "a")]
    phone = await a_phone(servers)
    await send(running, BUSINESS, PEER, "from the first")
    await send(running, SECOND, PEER, "from the second")
    await soon(lambda: phone.senders == {BUSINESS, SECOND})
    async with world.database.reading() as connection:
        rows = await connection.execute(sa.text("SELECT account, shard FROM messages ORDER BY shard"))
        assert [tuple(row) for row in rows] == [(BUSINESS, 0), (SECOND, 32)]
        peers = await connection.execute(sa.text("SELECT account, peer FROM sessions ORDER BY account"))
        assert [tuple(row) for row in peers] == [(BUSINESS, PEER), (SECOND, PEER)]


async def test_numbers_share_connections_that_one_of_them_leaves_and_joins_again(
    world: World, servers: RealNetwork
) -> None:
    running = await running_with_two(world, servers, shard_count=2)
    connections = running.node.process.connections
    # Each has a shard of both numbers.
    assert len(connections) == 2
    phone = await a_phone(servers)
    await send(running, BUSINESS, PEER, "before")
    await soon(lambda: phone.senders == {BUSINESS})
    mine = 32 + shard_of(PEER, 2)
    rest = {0, 1, 32, 33} - {mine}
    others = [running.node.shards.get(shard) for shard in rest]
    ended = running.node.shards.get(mine)
    assert ended is not None
    before = metrics.value("tidings_network_connections")
    ended.context.journal.fail(ChangeRefused("by the test"))
    await soon(lambda: running.node.shards.get(mine) not in (None, ended))
    await soon(lambda: all(shard.link.connected for shard in running.node.shards))
    assert not ended.link.connected
    # The others have stayed, on connections that were not closed.
    assert [running.node.shards.get(shard) for shard in rest] == others
    assert metrics.value("tidings_network_connections") >= before
    for account in (SECOND, BUSINESS):
        phone.senders.clear()
        await send(running, account, PEER, "after")
        await soon(lambda account=account: phone.senders == {account})  # type: ignore[misc]
    await running.stopped()
    assert len(connections) == 0


async def test_callbacks_go_to_the_webhook_of_the_number(world: World, servers: RealNetwork) -> None:
    running = await running_with_two(world, servers)
    await a_phone(servers)
    other = Sink()
    await other.start()
    try:
        async with world.database.transaction() as connection:
            await application_settings.change_settings(
                connection, SECOND, {"webhooks": {"url": other.url, "message": {"sent": True}}, "sent_status": True}
            )
        assert isinstance(await running.client.call(lambda n: core.SettingsChanged(n, SECOND)), core.Done)
        sent = await send(running, SECOND, PEER, "from the second")
        first = await send(running, BUSINESS, PEER, "from the first")
        await soon(lambda: sent.id in posted(other))
        await soon(lambda: first.id in posted(world.sink))
        assert sent.id not in posted(world.sink)
        assert first.id not in posted(other)
    finally:
        await running.stopped()
        await other.stop()


async def test_webhooks_of_a_shared_waba_name_it_and_the_number_that_they_are_about(
    world: World, servers: RealNetwork
) -> None:
    running = await running_with_two(world, servers, waba_of=BUSINESS)
    await a_phone(servers)
    async with receiving(webhook_secrets.app_secret(SECRET, APP)) as sink:
        await subscribe(world, sink.url)
        for account in (BUSINESS, SECOND):
            assert isinstance(await running.client.call(lambda n, a=account: core.SettingsChanged(n, a)), core.Done)
        first = await send(running, BUSINESS, PEER, "from the first")
        second = await send(running, SECOND, PEER, "from the second")
        for account, sent in ((BUSINESS, first), (SECOND, second)):
            label = (wamid.encode(sent.id, PEER), "sent")
            await sink.taken(label)
            (post,) = [post for post in sink.posts if label in post.labels]
            (entry,) = post.body["entry"]
            assert entry["id"] == "2397639735729717"
            assert entry["changes"][0]["value"]["metadata"]["display_phone_number"] == account
        await running.stopped()


async def test_health_is_that_of_the_requested_number(world: World, servers: RealNetwork) -> None:
    running = await running_with_two(world, servers)

    async def owned(account: str) -> list[int]:
        health: core.Health = await running.client.call(lambda n: core.GetHealth(n, account))
        return health.shards

    assert await owned("") == [0, 32]
    assert await owned(BUSINESS) == [0]
    assert await owned(SECOND) == [32]
    refused = await running.client.call(lambda n: core.ListGroups(n, "15550000009"))
    assert (refused.code, refused.retry_after) == (codes.NOT_PRIMARY_COREAPP, 1)


async def test_a_full_job_queue_of_one_number_refuses_no_message_of_another(world: World, servers: RealNetwork) -> None:
    running = await start(world, servers, "a", shards=1, job_queue_limit=10)
    await add(world)
    await soon(lambda: running.node.shards.numbers == [0, 32])
    await soon(lambda: all(shard.link.connected for shard in running.node.shards))
    await a_phone(servers)
    await send(running, SECOND, PEER, "before")
    content = b'{"type":"text","text":{"body":"burst"}}'
    first = [
        running.client.call(lambda n: core.AcceptMessage(n, BUSINESS, PEER, "text", content, request_id=str(n)))
        for _ in range(50)
    ]
    *responses, other = await asyncio.gather(
        *first, running.client.call(lambda n: core.AcceptMessage(n, SECOND, PEER, "text", content))
    )
    refused = [response for response in responses if not isinstance(response, core.Accepted)]
    assert refused
    assert {response.code for response in refused} == {1016}
    assert isinstance(other, core.Accepted)


async def test_metrics_of_a_shard_name_its_number(world: World, servers: RealNetwork) -> None:
    running = await running_with_two(world, servers)
    text = (await running.client.call(core.GetMetrics)).text
    for number, shard in ((BUSINESS, 0), (SECOND, 32)):
        assert f'tidings_queue_depth{{number="{number}",queue="jobs",shard="{shard}"}} 0.0' in text
        assert f'tidings_queue_limit{{number="{number}",queue="callbacks",shard="{shard}"}} ' in text
        assert f'tidings_upstream_connected{{number="{number}",shard="{shard}"}} 1.0' in text
    async with world.database.transaction() as connection:
        row = await numbers.find(connection, SECOND)
        assert row is not None
        await number_removal.begin(connection, row, drop=True)
    await soon(lambda: running.node.shards.numbers == [0])

    async def are_withdrawn() -> bool:
        text = (await running.client.call(core.GetMetrics)).text
        gauges = ("tidings_queue_depth", "tidings_queue_limit", "tidings_shard_number", "tidings_upstream_connected")
        return not any(f'{gauge}{{number="{SECOND}"' in text for gauge in gauges)

    await polling.until(are_withdrawn)


async def test_the_shards_of_one_number_change_while_another_number_is_served(
    world: World, servers: RealNetwork
) -> None:
    running = await running_with_two(world, servers, shard_count=2)
    kept = running.node.shards.get(0)
    async with world.database.transaction() as connection:
        await layouts.request(connection, 4, 1)
    await soon(lambda: running.node.shards.numbers == [0, 1, 32, 33, 34, 35])
    assert running.node.shards.get(0) is kept
    await a_phone(servers)
    await send(running, SECOND, PEER, "after the change")
    await send(running, BUSINESS, PEER, "after the change")


async def test_a_second_coreapp_takes_half_of_the_shards_of_all_numbers(world: World, servers: RealNetwork) -> None:
    running = await running_with_two(world, servers)
    other = await start(world, servers, "b", owned=False)
    await soon(lambda: len(running.node.shards) == 1 == len(other.node.shards))
    assert sorted([*running.node.shards.numbers, *other.node.shards.numbers]) == [0, 32]
    await running.stopped()
    await soon(lambda: other.node.shards.numbers == [0, 32])


async def test_a_removed_number_is_left_and_its_block_serves_the_next_one(world: World, servers: RealNetwork) -> None:
    running = await running_with_two(world, servers)
    async with world.database.transaction() as connection:
        row = await numbers.find(connection, SECOND)
        assert row is not None
        await number_removal.begin(connection, row, drop=True)
    await soon(lambda: running.node.shards.numbers == [0])
    await soon(lambda: [parts.number for parts in running.node.numbers] == [BUSINESS])
    async with world.database.transaction() as connection:
        await numbers.delete(connection, SECOND)
    assert (await add(world, "15550000002")).shard_block == 1
    await soon(lambda: running.node.shards.numbers == [0, 32])
    assert [shard.context.account for shard in running.node.shards] == [BUSINESS, "15550000002"]


async def test_a_number_that_waits_for_its_code_does_not_keep_the_first_one_from_being_served(
    world: World, servers: RealNetwork
) -> None:
    registered = await start(world, servers, "a", shards=1)
    await registered.stopped()
    running = await start(world, servers, "a", shards=1, auto_register=False)
    await add(world)
    second = running.node.numbers.of
    await soon(lambda: (found := second(SECOND)) is not None and found.requests.waits_for_code)
    await soon(running.node.owned.is_set)
    health: core.Health = await running.client.call(lambda n: core.GetHealth(n, SECOND))
    assert health.gateway_status == "unregistered"
    await a_phone(servers)
    await send(running, BUSINESS, PEER, "from the first")


async def test_changed_settings_of_every_number_are_noticed(world: World, servers: RealNetwork) -> None:
    running = await running_with_two(world, servers)
    async with world.database.transaction() as connection:
        await application_settings.change_settings(connection, SECOND, {"callback_persist": False})
        await changes.note(connection, changes.SETTINGS)
    shard = running.node.shards.first_of(1)
    assert shard is not None
    await soon(lambda: not shard.context.config.settings.callback_persist)
    assert running.shard.context.config.settings.callback_persist
