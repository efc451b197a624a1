"""The business's registration and its private pre-keys."""

from __future__ import annotations

import pytest

from tests.conftest import DatabaseFactory
from tidings.config.env import SettingsError
from tidings.storage.business import accounts, users
from tidings.storage.business.accounts import Account, OwnPreKey

NUMBER = "15550000000"


async def test_a_new_registration_replaces_the_old_one_and_its_pre_keys(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    first = Account(NUMBER, 7, b"\0identity", b"token", b"key")
    async with database.transaction() as connection:
        assert await accounts.find_account(connection, NUMBER) is None
        await accounts.add_account(connection, first)
        await accounts.add_prekeys(connection, [OwnPreKey(NUMBER, accounts.SIGNED, 1, b"s" * 100)])
    async with database.reading() as connection:
        assert await accounts.find_account(connection, NUMBER) == first
    second = Account(NUMBER, 8, b"other", b"token", b"key")
    async with database.transaction() as connection:
        await accounts.add_account(connection, second)
        assert await accounts.find_account(connection, NUMBER) == second
        assert await accounts.list_prekeys(connection, NUMBER) == []


async def test_a_database_belongs_to_the_number_of_its_users_or_its_registration(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    await accounts.require_number(database, NUMBER)
    async with database.transaction() as connection:
        await accounts.add_account(connection, Account("15551111111", 7, b"identity", b"token", b"key"))
    await accounts.require_number(database, "15551111111")
    with pytest.raises(SettingsError, match=f"is {NUMBER}, but this database is that of 15551111111:"):
        await accounts.require_number(database, NUMBER)
    async with database.transaction() as connection:
        await users.add_user_if_missing(connection, users.User("admin", NUMBER, users.ADMIN, "hash", False, 1))
    await accounts.require_number(database, NUMBER)
    with pytest.raises(SettingsError, match=f"is 15551111111, but this database is that of {NUMBER}:"):
        await accounts.require_number(database, "15551111111")


async def test_exactly_the_named_pre_keys_are_deleted(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    keys = [OwnPreKey(NUMBER, accounts.ONE_TIME, n, b"k") for n in range(1, 2501)]
    other = [OwnPreKey(NUMBER, accounts.SIGNED, 1, b"s"), OwnPreKey("1", accounts.ONE_TIME, 1, b"o")]
    async with database.transaction() as connection:
        await accounts.add_prekeys(connection, [*keys, *other])
        await accounts.add_prekeys(connection, [])
        for _ in range(2):
            await accounts.delete_prekeys(connection, NUMBER, accounts.ONE_TIME, list(range(1, 2500)))
        left = await accounts.list_prekeys(connection, NUMBER)
        assert sorted((key.kind, key.key_id) for key in left) == [("one_time", 2500), ("signed", 1)]
        assert await accounts.list_prekeys(connection, "1") == [other[1]]
