"""Revoked tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tidings.storage.business import tokens
from tidings.storage.business.tokens import Revocation
from tidings.storage.database import Database


@pytest.fixture
async def database(database_factory: Callable[[str], Awaitable[Database]]) -> Database:
    return await database_factory("business")


async def revoke(database: Database, *revocations: Revocation) -> None:
    async with database.transaction() as connection:
        for revocation in revocations:
            await tokens.revoke(connection, revocation)


async def test_only_the_revoked_token_is_revoked(database: Database) -> None:
    await revoke(database, Revocation("a" * 32, 2_000, 1_000))
    async with database.reading() as connection:
        assert await tokens.is_revoked(connection, ["a" * 32, "c" * 32])
        assert not await tokens.is_revoked(connection, ["b" * 32])
        assert not await tokens.is_revoked(connection, ["A" * 32])


async def test_revoking_twice_changes_nothing(database: Database) -> None:
    await revoke(database, Revocation("a", 2_000, 1_000))
    await revoke(database, Revocation("a", 3_000, 1_500))
    async with database.reading() as connection:
        assert await tokens.list_revoked_since(connection, 0) == [Revocation("a", 2_000, 1_000)]


async def test_revocations_since_a_time_are_listed_oldest_first(database: Database) -> None:
    await revoke(database, *(Revocation(f"t{n}", 9_000, n) for n in (300, 100, 200, 400)))
    async with database.reading() as connection:
        found = await tokens.list_revoked_since(connection, 200)
    assert [revocation.jti for revocation in found] == ["t200", "t300", "t400"]


async def test_only_expired_revocations_are_deleted_in_steps(database: Database) -> None:
    await revoke(database, *(Revocation(f"t{n}", n, 0) for n in range(100, 110)))
    deleted = []
    for _ in range(4):
        async with database.transaction() as connection:
            deleted.append(await tokens.delete_expired(connection, 107, limit=3))
    assert deleted == [3, 3, 1, 0]
    async with database.reading() as connection:
        left = await tokens.list_revoked_since(connection, 0)
    assert {revocation.jti for revocation in left} == {"t107", "t108", "t109"}
