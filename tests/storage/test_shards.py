"""Leases: claimed by one process, kept by heartbeats, fenced by their epoch."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings.storage.business import shards
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.database import Database

PAGE = Path(__file__).parents[2] / "docs" / "shard-without-owner.md"


async def fresh(database_factory: DatabaseFactory) -> Database:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await shards.create_shards(connection, 2)
    return database


async def claim(database: Database, owner: str, *, shard: int = 0, heartbeat_timeout: float = 30.0) -> Lease | None:
    async with database.transaction() as connection:
        return await shards.claim(
            connection, shard, owner=owner, address=f"{owner}:1", heartbeat_timeout=heartbeat_timeout
        )


async def test_a_free_shard_is_claimed_once_and_its_epoch_rises(database_factory: DatabaseFactory) -> None:
    database = await fresh(database_factory)
    assert await claim(database, "a") == Lease(0, "a", 1, 2)
    assert await claim(database, "b") is None
    assert await claim(database, "a") == Lease(0, "a", 2, 2), "one's own, after a restart"
    assert await claim(database, "b", shard=1) == Lease(1, "b", 1, 2)
    assert await claim(database, "b", shard=7) is None
    async with database.reading() as connection:
        owners = await shards.list_owners(connection)
    assert [(owner.shard, owner.node, owner.address, owner.epoch) for owner in owners] == [
        (0, "a", "a:1", 2),
        (1, "b", "b:1", 1),
    ]


async def test_the_query_of_the_page_shows_the_latest_owners_of_a_shard(database_factory: DatabaseFactory) -> None:
    found = re.search(r"```sql\s+(.+?);\s+```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    database = await database_factory("business")
    async with database.transaction() as connection:
        await shards.create_shards(connection, 3)
    for owner in ("a", "b"):
        lease = await claim(database, owner, shard=2)
        assert lease is not None
        if owner == "a":
            async with database.transaction() as connection:
                await shards.release(connection, lease)
    async with database.reading() as connection:
        rows = (await connection.execute(sa.text(found[1]))).all()
    assert [(row.shard, row.epoch, row.owner, row.ending) for row in rows] == [(2, 2, "b", ""), (2, 1, "a", "released")]


async def test_creating_shards_keeps_existing_ones(database_factory: DatabaseFactory) -> None:
    database = await fresh(database_factory)
    await claim(database, "a")
    async with database.transaction() as connection:
        layout = await shards.create_shards(connection, 4)
        owners = await shards.list_owners(connection)
    assert layout.shards == 2, "how many there are is settled at the first creation"
    assert [owner.node for owner in owners] == ["a", ""]


async def test_a_lease_expires_without_a_heartbeat_and_is_kept_by_one(database_factory: DatabaseFactory) -> None:
    database = await fresh(database_factory)
    lease = await claim(database, "a")
    assert lease is not None
    async with database.transaction() as connection:
        await connection.execute(shards.table.update().values(heartbeat_at=shards.table.c.heartbeat_at - 40_000))
        await shards.renew(connection, lease)
        # Two renewals in one millisecond do not lose the lease.
        await shards.renew(connection, lease)
    assert await claim(database, "b") is None
    async with database.transaction() as connection:
        await connection.execute(shards.table.update().values(heartbeat_at=shards.table.c.heartbeat_at - 40_000))
    assert await claim(database, "b") == Lease(0, "b", 2, 2)
    for question in (shards.renew, shards.fence):
        with pytest.raises(LeaseLost):
            async with database.transaction() as connection:
                await question(connection, lease)


async def test_several_leases_are_checked_together(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await shards.create_shards(connection, 3)
    found = [await claim(database, "a", shard=shard) for shard in (2, 0, 1)]
    leases = [lease for lease in found if lease is not None]

    async def committed() -> list[int]:
        async with database.reading() as connection:
            rows = await connection.execute(sa.select(shards.table.c.commits).order_by(shards.table.c.shard))
            return [row[0] for row in rows]

    for several in (leases, leases[:2], leases[:1]):
        async with database.transaction() as connection:
            await shards.fence_all(connection, several)
    assert await committed() == ([0, 0, 0] if database.settings.engine == "sqlite" else [2, 1, 3])
    assert await claim(database, "a", shard=1) == Lease(1, "a", 2, 3)
    before = await committed()
    with pytest.raises(LeaseLost):
        async with database.transaction() as connection:
            await shards.fence_all(connection, leases)
    assert await committed() == before
    async with database.transaction() as connection:
        await shards.fence_all(connection, leases[:2])


async def test_fences_of_different_shards_do_not_wait_for_each_other(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    if database.settings.engine == "sqlite":
        pytest.skip("transactions of SQLite exclude each other from their start")
    async with database.transaction() as connection:
        await shards.create_shards(connection, 20)
    leases = [lease for shard in range(20) if (lease := await claim(database, "a", shard=shard)) is not None]
    async with database.transaction() as one:
        await shards.fence_all(one, leases[::2])
        await one.execute(sa.select(1))
        async with asyncio.timeout(5), database.transaction() as other:
            await shards.fence_all(other, leases[1::2])


async def test_a_released_shard_is_free_at_once_and_a_lost_lease_releases_nothing(
    database_factory: DatabaseFactory,
) -> None:
    database = await fresh(database_factory)
    first = await claim(database, "a")
    assert first is not None
    async with database.transaction() as connection:
        await shards.release(connection, first)
    second = await claim(database, "b")
    assert second == Lease(0, "b", 2, 2)
    async with database.transaction() as connection:
        await shards.release(connection, first)
        await shards.fence(connection, second)
    assert await claim(database, "a") is None


async def test_a_takeover_waits_for_the_owners_transaction(database_factory: DatabaseFactory) -> None:
    """Commits of the old owner therefore precede the new owner's reads, and none comes later."""
    database = await fresh(database_factory)
    lease = await claim(database, "a")
    assert lease is not None
    async with database.transaction() as connection:
        await shards.fence(connection, lease)
        # A pipelined statement, here the fence, is sent with the next one that returns a result.
        await connection.execute(sa.text("SELECT 1"))
        taking = asyncio.create_task(claim(database, "b", heartbeat_timeout=-1.0))
        done, _ = await asyncio.wait([taking], timeout=0.2)
        assert not done
    taken = await taking
    assert taken is not None
    assert taken.epoch == 2


async def test_the_database_clock_is_unix_time(database_factory: DatabaseFactory) -> None:
    database = await fresh(database_factory)
    await claim(database, "a")
    async with database.reading() as connection:
        row = (await connection.execute(shards.table.select().where(shards.table.c.shard == 0))).one()
    assert abs(row.heartbeat_at / 1000 - time.time()) < 30


async def test_claiming_any_shard_waits_for_a_transaction_that_replaces_the_device(
    database_factory: DatabaseFactory,
) -> None:
    """The claim of a free shard waits too: otherwise its new owner would have read the former keys."""
    database = await fresh(database_factory)
    lease = await claim(database, "a")
    assert lease is not None
    async with database.transaction() as connection:
        await shards.fence(connection, lease)
        await shards.expel_others(connection, lease)
    async with database.reading() as connection:
        assert [owner.epoch for owner in await shards.list_owners(connection)] == [1, 1], "the free one is written"
    assert await claim(database, "b", shard=1) == Lease(1, "b", 2, 2)
