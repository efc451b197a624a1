"""Coreapps of an installation know each other, and no two share a name."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from coreapp.shard.membership import CoreappMembership, list_live
from harness import polling
from tests import lease_records
from tests.coreapp.conftest import World
from tests.coreapp.signals import soon
from tidings.config.env import SettingsError
from tidings.storage.business import leases, nodes
from tidings.storage.business.nodes import CoreappNode, NodeRecord, ProcessReplaced
from tidings.storage.business.shards import ShardState


def membership(world: World, name: str, address: str, heartbeat: float = 0.05) -> CoreappMembership:
    settings = world.settings.model_copy(update={"node": name, "heartbeat_seconds": heartbeat})
    return CoreappMembership(world.database, settings, lambda: address)


async def listed(world: World) -> list[str]:
    async with world.database.reading() as connection:
        return [member.node.name for member in await nodes.list_members(connection)]


async def test_processes_are_listed_from_their_start_to_their_planned_end(world: World) -> None:
    first = await world.start(node="first")
    await world.start(node="second", owned=False)
    await soon_listed(world, "first", "second")
    await first.stopped()
    assert await listed(world) == ["second"]


async def test_a_second_process_with_a_live_process_s_name_is_refused(world: World) -> None:
    # Another process listens at the address.
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    first = membership(world, "one", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await first.join(asyncio.Event())
    stop = asyncio.Event()
    beating = asyncio.create_task(first.run(stop))
    with pytest.raises(SettingsError, match="another Coreapp of this installation runs under the name one"):
        await membership(world, "one", "127.0.0.1:2").join(asyncio.Event())
    stop.set()
    await beating
    # It is dead: no heartbeat comes.
    await membership(world, "one", "127.0.0.1:2").join(asyncio.Event())
    server.close()


async def test_a_restart_after_a_crash_does_not_wait_for_the_old_heartbeat_to_expire(world: World) -> None:
    await membership(world, "one", "127.0.0.1:1", heartbeat=600.0).join(asyncio.Event())
    async with asyncio.timeout(30):
        # Allowed at its own address, and at another while no process listens at the old one.
        await membership(world, "one", "127.0.0.1:1", heartbeat=600.0).join(asyncio.Event())
        await membership(world, "one", "127.0.0.1:2", heartbeat=600.0).join(asyncio.Event())


async def test_a_process_whose_name_was_taken_raises_replaced(world: World) -> None:
    first = membership(world, "one", "127.0.0.1:1")
    await first.join(asyncio.Event())
    await membership(world, "one", "127.0.0.1:1").join(asyncio.Event())
    with pytest.raises(ProcessReplaced, match="one"):
        await first.run(asyncio.Event())


async def test_an_evicted_process_is_listed_again(world: World) -> None:
    first = membership(world, "one", "127.0.0.1:1")
    await first.join(asyncio.Event())
    async with world.database.transaction() as connection:
        await nodes.delete_lost(connection, -1.0)
    assert await listed(world) == []
    stop = asyncio.Event()
    beating = asyncio.create_task(first.run(stop))
    await soon_listed(world, "one")
    stop.set()
    await beating


async def soon_listed(world: World, *names: str) -> None:
    async def is_listed() -> bool:
        return await listed(world) == list(names)

    await polling.until(is_listed, pause=0.01)


def test_processes_without_heartbeats_or_with_a_lost_shard_get_no_shard() -> None:
    def member(name: str, heartbeat_timeout: float) -> NodeRecord:
        return NodeRecord(CoreappNode(name, "x", "h:1", 1.0), 0, 0, heartbeat_timeout)

    states = [ShardState(0, "a", "", 0.1), ShardState(1, "b", "", 31.0)]
    members = [member("a", 2.0), member("b", 0.1), member("c", 3.5), member("d", 0.0)]
    assert list_live(members, states, heartbeat_timeout=30.0) == {"a", "d"}


async def test_a_process_that_ends_does_not_claim_its_shard_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await world.start()
    node = running.node
    survey = await node._membership.survey()
    polls: list[asyncio.Task[None]] = []
    update = node._update_owned

    def poll_ends() -> None:
        # As if a poll had read the rows before the shard ended.
        update()
        polls.append(asyncio.create_task(node._follow(survey)))

    monkeypatch.setattr(node, "_update_owned", poll_ends)
    await running.killed()
    await asyncio.gather(*polls)
    async with world.database.reading() as connection:
        found = await lease_records.list_records(connection)
    assert [record.epoch for record in found] == [1]


async def test_the_lease_log_lists_shard_owners_without_overlap(world: World) -> None:
    first = await world.start(node="first")
    second = await world.start(node="second", owned=False)
    await first.stopped()
    await world.owner(second)
    await second.killed()
    third = await world.start(node="third")
    async with world.database.reading() as connection:
        found = await lease_records.list_records(connection)
    assert [(record.owner, record.epoch, record.ending) for record in found] == [
        ("first", 1, leases.RELEASED),
        ("second", 2, leases.TAKEN),
        ("third", 3, ""),
    ]
    for before, after in itertools.pairwise(found):
        assert before.claimed_at <= before.ended_at <= after.claimed_at
    assert found[-1].ended_at == 0
    await soon(lambda: third.node.owned.is_set())
