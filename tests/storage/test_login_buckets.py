"""Token buckets in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tidings.storage.business import login_buckets, login_origins
from tidings.storage.business.login_origins import LoginOrigin
from tidings.storage.database import Database

NOW = 1_700_000_000_000


@pytest.fixture
async def database(database_factory: Callable[[str], Awaitable[Database]]) -> Database:
    return await database_factory("business")


async def take(database: Database, *buckets: str, now: int = NOW) -> dict[str, int]:
    found = await database.persist(
        lambda connection: login_buckets.take(connection, buckets, now, interval=1000, filling=5000)
    )
    return dict(found)


async def test_a_bucket_grants_its_capacity_and_then_one_token_per_interval(database: Database) -> None:
    assert [await take(database, "a", "b") for _ in range(5)] == [{}] * 5
    assert await take(database, "a", "b") == {"a": NOW + 5000, "b": NOW + 5000}
    assert await take(database, "b", "a", now=NOW + 999) != {}
    assert await take(database, "a", "b", now=NOW + 1000) == {}
    assert await take(database, "a", "b", now=NOW + 1001) != {}
    assert await take(database, "c", "d", now=NOW + 1001) == {}


async def test_no_token_is_consumed_when_one_of_two_buckets_is_empty(database: Database) -> None:
    for _ in range(5):
        await take(database, "a", "b")
    found = await take(database, "a", "c")
    assert found["a"] == NOW + 5000


async def test_concurrent_requests_receive_no_more_tokens_than_available(database: Database) -> None:
    found = await asyncio.gather(*(take(database, "account", f"address {number}") for number in range(12)))
    assert found.count({}) == 5


async def test_only_a_full_bucket_is_deleted(database: Database) -> None:
    await take(database, "a")
    await take(database, "b", now=NOW + 5000)
    async with database.transaction() as connection:
        assert await login_buckets.delete_full(connection, NOW + 1001, limit=10) == 1
    async with database.reading() as connection:
        [row] = await connection.execute(login_buckets.table.select())
    assert row.bucket == "b"


async def test_login_origins_keep_their_latest_time_and_are_deleted_with_their_user(database: Database) -> None:
    origins = [
        LoginOrigin("ädmin", "192.0.2.1", NOW),
        LoginOrigin("ädmin", "192.0.2.1", NOW + 9),
        LoginOrigin("bob-", "::/64", NOW),
    ]
    async with database.transaction() as connection:
        for origin in origins:
            await login_origins.save(connection, origin)
    async with database.reading() as connection:
        assert await login_origins.list_since(connection, NOW, limit=10) == origins[1:]
        assert await login_origins.list_since(connection, 0, limit=1) == origins[1:2]
    async with database.transaction() as connection:
        await login_origins.delete_of(connection, "ädmin")
        assert await login_origins.delete_old(connection, 0, keep=10) == 0
        assert await login_origins.delete_old(connection, NOW + 1, keep=10) == 1
