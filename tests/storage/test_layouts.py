"""Number of shards, requested and actual: who may change it, and what is refused during a change and afterwards."""

from __future__ import annotations

import contextlib

import pytest

from tests import lease_records
from tests.conftest import DatabaseFactory
from tidings.storage.business import layout_changes, layouts, shards
from tidings.storage.business.layouts import Layout
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.database import Database

SILENCE = 30.0


async def claim(database: Database, shard: int, owner: str, *, heartbeat_timeout: float = SILENCE) -> Lease | None:
    async with database.transaction() as connection:
        return await shards.claim(
            connection, shard, owner=owner, address=f"{owner}:1", heartbeat_timeout=heartbeat_timeout
        )


async def begin(database: Database, owner: str, *, heartbeat_timeout: float = SILENCE) -> Lease | None:
    async with database.transaction() as connection:
        return await layout_changes.begin(connection, owner=owner, heartbeat_timeout=heartbeat_timeout)


async def request(database: Database, count: int) -> Layout:
    async with database.transaction() as connection:
        return await layouts.request(connection, count)


async def finish(database: Database, lease: Lease, before: Layout) -> Layout | None:
    async with database.transaction() as connection:
        return await layout_changes.finish(connection, lease, before)


async def make(database: Database, count: int) -> Layout:
    before = await request(database, count)
    lease = await begin(database, "maker")
    assert lease is not None
    made = await finish(database, lease, before)
    assert made is not None
    return made


async def fresh(database_factory: DatabaseFactory, count: int = 2) -> Database:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await shards.create_shards(connection, count)
    return database


async def test_a_layout_change_requires_that_no_shard_is_owned_and_blocks_claims(
    database_factory: DatabaseFactory,
) -> None:
    database = await fresh(database_factory)
    first, second = await claim(database, 0, "a"), await claim(database, 1, "b")
    assert first is not None
    assert second is not None
    assert await begin(database, "c") is None, "no other number is wanted"
    before = await request(database, 8)
    assert (before.shards, before.wanted, before.is_changing) == (2, 8, True)
    assert await begin(database, "c") is None
    async with database.transaction() as connection:
        await shards.release(connection, first)
    assert await begin(database, "c") is None, "somebody still works for one"
    assert await claim(database, 0, "d") is None
    async with database.transaction() as connection:
        await shards.release(connection, second)
    lease = await begin(database, "c")
    assert lease is not None
    assert await begin(database, "d") is None, "one makes it alone"
    assert await claim(database, 0, "d") is None
    async with database.transaction() as connection:
        await shards.renew(connection, lease)
        await layouts.note_moved(connection, 3)
        await layouts.note_moved(connection, 4)
        assert (await layouts.find(connection)).moved == 7
    assert await finish(database, lease, before) == Layout(1, 8)
    found = [await claim(database, shard, "d") for shard in range(8)]
    assert [(lease.shards, lease.layout) for lease in found if lease is not None] == [(8, 1)] * 8


async def test_a_process_that_dies_in_a_layout_change_is_replaced_and_fenced(
    database_factory: DatabaseFactory,
) -> None:
    database = await fresh(database_factory)
    before = await request(database, 4)
    dead = await begin(database, "dead")
    assert dead is not None
    assert await begin(database, "other") is None
    # Under its own name it need not wait.
    back = await begin(database, "dead")
    assert back is not None
    other = await begin(database, "other", heartbeat_timeout=-1)
    assert other is not None
    assert other.epoch > back.epoch > dead.epoch
    for late in (dead, back):
        async with database.transaction() as connection:
            with pytest.raises(LeaseLost):
                await shards.renew(connection, late)
        with pytest.raises(LeaseLost):
            await finish(database, late, before)
    assert await finish(database, other, before) == Layout(1, 4)


async def test_no_owner_of_an_earlier_layout_can_commit(
    database_factory: DatabaseFactory,
) -> None:
    database = await fresh(database_factory, 1)
    former: list[Lease] = []
    counts = (1, 4, 2, 8, 1, 4)
    for number, count in enumerate(counts):
        if number:
            await make(database, count)
        for shard in range(count):
            for turn in range(3):
                lease = await claim(database, shard, f"node{turn}", heartbeat_timeout=-1)
                assert lease is not None
                former.append(lease)
        now = former[-1:]
        for lease in former:
            is_owner = lease.layout == number and lease.owner == "node2"
            with contextlib.nullcontext() if is_owner else pytest.raises(LeaseLost):
                async with database.transaction() as connection:
                    await shards.fence(connection, lease)
            if is_owner:
                now.append(lease)
        assert len(now) == count + 1
        for shard in range(count):
            async with database.transaction() as connection:
                await shards.release(connection, next(lease for lease in now if lease.shard == shard))
    assert len({(lease.shard, lease.epoch) for lease in former}) == len(former), "an epoch is given out once"
    async with database.reading() as connection:
        records = await lease_records.list_records(connection)
    assert [record for record in records if not record.ended_at] == []


async def test_a_shard_count_requested_during_a_change_replaces_the_pending_one(
    database_factory: DatabaseFactory,
) -> None:
    database = await fresh(database_factory)
    before = await request(database, 8)
    lease = await begin(database, "a")
    assert lease is not None
    assert (await request(database, 4)).wanted == 4
    assert await finish(database, lease, before) is None
    async with database.reading() as connection:
        now = await layouts.find(connection)
        assert len(await shards.list_owners(connection)) == 2
    assert await finish(database, lease, now) == Layout(1, 4)
    # A return to the former number is a change like any other, since the change has started.
    await request(database, 8)
    back = await request(database, 4)
    assert (back.shards, back.wanted) == (4, 4)


async def test_requesting_the_current_shard_count_is_no_change(database_factory: DatabaseFactory) -> None:
    database = await fresh(database_factory)
    assert await request(database, 2) == Layout(0, 2)
    assert await begin(database, "a") is None


async def test_before_the_first_coreapp_any_shard_count_becomes_the_first_layout(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    assert await request(database, 4) == Layout(0, 4)
    async with database.transaction() as connection:
        assert await shards.create_shards(connection, 1) == Layout(0, 4)
        assert len(await shards.list_owners(connection)) == 4
