"""Guarantees of the table of blocked users."""

from __future__ import annotations

import pytest

from tests.conftest import DatabaseFactory
from tidings.storage.business import blocked_users
from tidings.storage.business.blocked_users import BlockedUser
from tidings.storage.database import Database

ACCOUNT, OTHER = "15550000000", "15550000001"


@pytest.fixture
async def database(database_factory: DatabaseFactory) -> Database:
    found = await database_factory("business")
    async with found.transaction() as connection:
        users = [BlockedUser(ACCOUNT, f"1555011000{n}", 1) for n in range(5)]
        await blocked_users.add(connection, [*users, BlockedUser(OTHER, "15550110009", 1)])
    return found


async def test_a_user_is_blocked_once_and_by_one_number(database: Database) -> None:
    async with database.transaction() as connection:
        await blocked_users.add(connection, [BlockedUser(ACCOUNT, "15550110000", 2)])
        assert await blocked_users.count(connection, ACCOUNT) == 5
        assert await blocked_users.list_all(connection, OTHER) == {"15550110009"}
        requested = ["15550110000", "15550110009"]
        assert await blocked_users.list_known(connection, ACCOUNT, requested) == {"15550110000"}
        await blocked_users.remove(connection, ACCOUNT, requested)
        assert await blocked_users.list_all(connection, ACCOUNT) == {f"1555011000{n}" for n in range(1, 5)}
        assert await blocked_users.count(connection, OTHER) == 1


async def test_pages_follow_each_other_both_ways(database: Database) -> None:
    async with database.reading() as connection:
        first = await blocked_users.list_after(connection, ACCOUNT, "", limit=3)
        assert first == ["15550110000", "15550110001", "15550110002"]
        second = await blocked_users.list_after(connection, ACCOUNT, first[-1], limit=3)
        assert second == ["15550110003", "15550110004"]
        assert await blocked_users.list_before(connection, ACCOUNT, second[0], limit=2) == first[1:]
        assert await blocked_users.list_before(connection, ACCOUNT, first[0], limit=2) == []


async def test_the_state_of_a_list_differs_after_each_of_its_changes_only(database: Database) -> None:
    states = []
    for block, unblock, account in (
        ((), (), ACCOUNT),
        # Blocked by a host whose clock is behind.
        (("15550110007",), ("15550110000",), ACCOUNT),
        (("15550110008",), (), OTHER),
    ):
        async with database.transaction() as connection:
            await blocked_users.remove(connection, account, unblock)
            await blocked_users.add(connection, [BlockedUser(account, user, 0) for user in block])
            states.append(await blocked_users.find_state(connection, ACCOUNT))
    assert states == [(5, 1, 5), (5, 1, 4), (5, 1, 4)]
