"""Users of the API."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from tidings.storage.business import users
from tidings.storage.business.users import User
from tidings.storage.database import Database

ADMIN = User("admin", "15550000000", users.ADMIN, "$argon2id$first", True, 1_700_000_000_000)
SUCCESSOR = dataclasses.replace(ADMIN, password_hash="$argon2id$second", must_change_password=False, generation=1)


@pytest.fixture
async def database(database_factory: Callable[[str], Awaitable[Database]]) -> Database:
    return await database_factory("business")


async def find(database: Database, username: str) -> User | None:
    async with database.reading() as connection:
        return await users.find_user(connection, username)


async def add(database: Database, user: User) -> None:
    async with database.transaction() as connection:
        await users.add_user_if_missing(connection, user)


async def test_a_user_is_found_as_added(database: Database) -> None:
    assert await find(database, "admin") is None
    await add(database, ADMIN)
    assert await find(database, "admin") == ADMIN


async def test_adding_an_existing_user_keeps_the_first(database: Database) -> None:
    await add(database, ADMIN)
    await add(database, dataclasses.replace(ADMIN, password_hash="$argon2id$second", must_change_password=False))
    assert await find(database, "admin") == ADMIN


@pytest.mark.parametrize("other", ["Admin", "ADMIN", "admin ", "ádmin", "admin\u0000", ""])
async def test_a_user_is_found_only_by_its_exact_name(database: Database, other: str) -> None:
    await add(database, ADMIN)
    assert await find(database, other) is None


async def test_a_password_change_requires_the_password_that_was_read(database: Database) -> None:
    await add(database, ADMIN)
    async with database.transaction() as connection:
        assert await users.replace(connection, ADMIN, SUCCESSOR)
    async with database.transaction() as connection:
        assert not await users.replace(connection, ADMIN, SUCCESSOR)
    assert await find(database, "admin") == SUCCESSOR


def test_the_repr_of_a_user_omits_the_password_hash() -> None:
    assert "argon2" not in repr(ADMIN)


async def test_adding_a_second_user_with_the_same_name_is_reported(database: Database) -> None:
    async with database.transaction() as connection:
        assert await users.add_user(connection, ADMIN)
    async with database.transaction() as connection:
        assert not await users.add_user(connection, dataclasses.replace(ADMIN, password_hash="$argon2id$other"))
    assert await find(database, "admin") == ADMIN


async def test_users_are_listed_by_account_and_deleted_only_as_read(database: Database) -> None:
    later = dataclasses.replace(ADMIN, username="observer", role=users.USER, created_at=ADMIN.created_at + 1)
    async with database.transaction() as connection:
        await users.add_user(connection, later)
        await users.add_user(connection, ADMIN)
        await users.add_user(connection, dataclasses.replace(ADMIN, username="elsewhere", account="15559999999"))
    async with database.transaction() as connection:
        assert await users.list_users(connection, ADMIN.account) == [ADMIN, later]
        assert not await users.delete_user(connection, dataclasses.replace(later, created_at=1))
        assert await users.delete_user(connection, later)
        assert await users.list_users(connection, ADMIN.account) == [ADMIN]
