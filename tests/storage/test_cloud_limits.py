"""Limits of the Cloud API as they are counted in the database: exact with several processes, and bounded in rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings.storage.business import changes, cloud_calls, cloud_limits, cloud_reached, cloud_users
from tidings.storage.business.cloud_calls import CallsOfHour
from tidings.storage.business.cloud_limits import AnnouncedLimits, CloudLimits
from tidings.storage.business.cloud_users import CloudUser
from tidings.storage.database import Database

FIRST, SECOND = "15550000000", "15550000001"
DAY_MS, NOW = 86_400_000, 1_800_000_000_000


@pytest.fixture
async def database(database_factory: DatabaseFactory) -> Database:
    return await database_factory("business")


async def admit(database: Database, *peers: str, limit: int = 3, now: int = NOW, account: str = FIRST) -> Sequence[int]:
    async with database.transaction() as connection:
        return await cloud_reached.admit(connection, account, [(peer, limit) for peer in peers], now=now)


async def positions(database: Database) -> list[int]:
    async with database.reading() as connection:
        query = sa.select(cloud_reached.table.c.position).order_by(cloud_reached.table.c.position)
        return [row.position for row in await connection.execute(query)]


async def test_limits_have_defaults_and_each_change_raises_their_version(database: Database) -> None:
    async with database.reading() as connection:
        assert await cloud_limits.find(connection, FIRST) == CloudLimits(FIRST)
        assert await cloud_limits.list_limits(connection) == []
    async with database.transaction() as connection:
        await cloud_limits.change(connection, FIRST, {"tier": "TIER_250", "is_test": True})
        await cloud_limits.change(connection, FIRST, {"throughput": "HIGH", "upgrade_ends_at": NOW})
        await cloud_limits.set_announced(connection, [AnnouncedLimits(FIRST, "TIER_250", "STANDARD", 1)])
    async with database.reading() as connection:
        [found] = await cloud_limits.list_limits(connection)
        assert (await changes.list_versions(connection))["cloud_limits"] == 2
    assert found == CloudLimits(FIRST, "TIER_250", "HIGH", NOW, True, "TIER_250", "STANDARD", 0, 0, 1)


async def test_a_number_has_at_most_five_test_recipients(database: Database) -> None:
    async with database.transaction() as connection:
        for n in range(5):
            await cloud_limits.add_recipient(connection, FIRST, f"1555011000{n}")
        await cloud_limits.add_recipient(connection, FIRST, "15550110000")
        await cloud_limits.add_recipient(connection, SECOND, "15550110009")
        with pytest.raises(cloud_limits.TooManyTestRecipients):
            await cloud_limits.add_recipient(connection, FIRST, "15550110009")
        assert await cloud_limits.remove_recipient(connection, FIRST, "15550110000")
        assert not await cloud_limits.remove_recipient(connection, FIRST, "15550110000")
        await cloud_limits.add_recipient(connection, FIRST, "15550110009")
    async with database.reading() as connection:
        found = await cloud_limits.list_recipients(connection)
    assert found == {
        FIRST: {"15550110001", "15550110002", "15550110003", "15550110004", "15550110009"},
        SECOND: {"15550110009"},
    }


async def test_a_recipient_counts_once_in_24_hours(database: Database) -> None:
    assert await admit(database, "a", "b", "a") == [NOW, NOW, NOW]
    assert await admit(database, "a", now=NOW + 1000) == [NOW]
    assert await admit(database, "c", "d", "b", now=NOW + 2000) == [NOW + 2000, 0, NOW]
    assert await positions(database) == [1, 2, 3]
    # 24 hours after `a` and `b` were counted there is room for two again, and `a` is counted again.
    later = NOW + DAY_MS
    assert await admit(database, "d", "a", "e", now=later) == [later, later, 0]
    assert await positions(database) == [1, 2, 3, 4, 5]


async def test_recipients_are_kept_and_counted_for_seven_days(database: Database) -> None:
    async def distinct(since: int, at_most: int = 100) -> int:
        async with database.reading() as connection:
            return await cloud_reached.count_distinct(connection, FIRST, since=since, at_most=at_most)

    for day in range(3):
        await admit(database, "a", "b", f"c{day}", now=NOW + day * DAY_MS)
    await admit(database, "z", account=SECOND)
    assert await positions(database) == [1, 1, *range(2, 10)]
    assert await distinct(NOW - 1) == 5
    assert await distinct(NOW) == 4
    assert await distinct(NOW - 1, at_most=2) == 2
    assert await distinct(NOW + 3 * DAY_MS) == 0
    # Each batch deletes at most twice as many rows as it adds.
    await admit(database, "a", now=NOW + 8 * DAY_MS)
    assert await positions(database) == [1, *range(3, 11)]
    await admit(database, "b", "c", "d", now=NOW + 8 * DAY_MS)
    assert await positions(database) == [1, *range(7, 13)]


async def test_a_batch_does_not_exceed_the_limit(database: Database) -> None:
    assert await admit(database, *"abcdefgh", limit=5) == [NOW] * 5 + [0] * 3
    assert await admit(database, *"xyz", limit=7) == [NOW, NOW, 0]
    assert await admit(database, "0", limit=1) == [0]
    assert await admit(database, "a", account=SECOND) == [NOW]


async def test_concurrent_processes_do_not_exceed_the_limit_together(database: Database) -> None:
    results = await asyncio.gather(*(admit(database, f"p{n}", limit=10) for n in range(25)))
    assert sum(found != [0] for found in results) == 10
    assert await positions(database) == list(range(1, 11))


async def test_calls_of_the_last_hour_are_counted_by_minute(database: Database) -> None:
    async def call(minute: float, limit: int = 3) -> CallsOfHour:
        async with database.transaction() as connection:
            return await cloud_calls.count(connection, FIRST, limit=limit, now=NOW + int(minute * 60_000))

    assert [await call(0), await call(0.5), await call(10)] == [CallsOfHour(n, 0) for n in (1, 2, 3)]
    assert await call(20) == CallsOfHour(3, 40)
    assert await call(59.9) == CallsOfHour(3, 1)
    assert await call(20, limit=4) == CallsOfHour(4, 0)
    # The first two calls are an hour old.
    assert await call(60) == CallsOfHour(3, 0)
    assert await call(60) == CallsOfHour(3, 10)


async def test_concurrent_calls_do_not_exceed_the_limit_together(database: Database) -> None:
    async def call() -> int:
        async with database.transaction() as connection:
            return (await cloud_calls.count(connection, FIRST, limit=7, now=NOW)).wait

    assert sorted(await asyncio.gather(*(call() for _ in range(20)))) == [0] * 7 + [60] * 13


async def test_an_id_of_a_user_stands_for_one_number_of_an_account(database: Database) -> None:
    async with database.transaction() as connection:
        await cloud_users.add(connection, [CloudUser(FIRST, "US.1", "15550110001"), CloudUser(SECOND, "US.2", "1")])
        await cloud_users.add(connection, [CloudUser(FIRST, "US.1", "15550110001")])
    async with database.reading() as connection:
        assert await cloud_users.find_peer(connection, FIRST, "US.1") == "15550110001"
        assert await cloud_users.find_peer(connection, FIRST, "US.2") == ""
        assert await cloud_users.find_peer(connection, FIRST, "US.é" * 60) == ""
