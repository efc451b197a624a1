"""Concurrent requests with one key: exactly one is the first. Keys of the previous release are found."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import sqlalchemy as sa

from tidings.storage.business import idempotency
from tidings.storage.business.idempotency import MEDIA, IdempotencyKey, UsedKey
from tidings.storage.database import Connection, Database

ACCOUNT = "15550000000"
KEY = idempotency.key_of("admin", "k")
OF_ANOTHER = idempotency.key_of("anna", "k")
Make = Callable[[str], Awaitable[Database]]


def use(answer: str, created_at: int = 1_000, account: str = ACCOUNT, form: bytes = KEY.shared) -> UsedKey:
    return UsedKey(account, MEDIA, form, b"f" * 32, answer, created_at)


async def claim(database: Database, key: IdempotencyKey, used: UsedKey, since: int = 0) -> str:
    async with database.transaction() as connection:
        return (await idempotency.claim(connection, key, used, since)).answer


async def find(database: Database, *keys: IdempotencyKey) -> list[str]:
    async with database.reading() as connection:
        found = await idempotency.look_up(connection, ACCOUNT, MEDIA, keys, 0)
    return [used.answer if (used := found[key].used) else "" for key in keys]


async def execute_as_before(connection: Connection, text: str, **values: Any) -> Any:
    """Execute a statement of the previous release, which does not know users."""
    known = {"account": ACCOUNT, "resource": MEDIA, "hash": KEY.shared}
    return await connection.execute(sa.text(text), {**known, **values})


async def insert_as_before(database: Database, answer: str) -> None:
    async with database.transaction() as connection:
        await execute_as_before(
            connection,
            "INSERT INTO idempotency_keys (account, resource, key_hash, fingerprint, answer, created_at)"
            " VALUES (:account, :resource, :hash, :fingerprint, :answer, 1000)",
            fingerprint=b"f" * 32,
            answer=answer,
        )


async def find_as_before(database: Database) -> Any:
    async with database.reading() as connection:
        rows = await execute_as_before(
            connection,
            "SELECT answer FROM idempotency_keys"
            " WHERE account = :account AND resource = :resource AND key_hash = :hash AND created_at > 0",
        )
        return rows.scalar()


async def test_every_later_use_receives_the_first_response_until_it_expires(database_factory: Make) -> None:
    database = await database_factory("business")
    assert await claim(database, KEY, use("first")) == "first"
    assert await claim(database, KEY, use("later", 2_000), 999) == "first"
    assert await claim(database, KEY, use("first")) == "first"
    assert await claim(database, KEY, use("later", 2_000), 1_000) == "later"
    assert await claim(database, KEY, use("other", account="15550000001")) == "other"


async def test_concurrent_claims_all_receive_the_same_response(database_factory: Make) -> None:
    database = await database_factory("business")

    async def claimed(answer: str) -> UsedKey:
        return await database.persist(lambda connection: idempotency.claim(connection, KEY, use(answer), 0))

    told = await asyncio.gather(*(claimed(f"answer {n}") for n in range(8)))
    assert len(set(told)) == 1


async def test_a_claimed_key_belongs_to_its_user(database_factory: Make) -> None:
    database = await database_factory("business")
    for _ in range(2):
        assert await claim(database, KEY, use("first")) == "first"
        assert await claim(database, OF_ANOTHER, use("other")) == "other"
        assert await find(database, KEY, OF_ANOTHER, idempotency.key_of("otto", "k")) == ["first", "other", ""]


async def test_a_saved_key_belongs_to_its_user(database_factory: Make) -> None:
    database = await database_factory("business")
    for key, answer in ((KEY, "first"), (OF_ANOTHER, "other")):
        async with database.transaction() as connection:
            found = (await idempotency.look_up(connection, ACCOUNT, MEDIA, [key], 0))[key]
            assert found.used is None
            used = dataclasses.replace(use(answer, form=found.form), username=key.username)
            await idempotency.save(connection, [used])
    assert await find(database, KEY, OF_ANOTHER, idempotency.key_of("otto", "k")) == ["first", "other", ""]


async def test_a_key_stored_by_the_previous_release_applies_to_every_user(database_factory: Make) -> None:
    database = await database_factory("business")
    await insert_as_before(database, "before")
    assert await find(database, KEY, OF_ANOTHER) == ["before", "before"]
    assert await claim(database, KEY, use("later")) == "before"
    assert await claim(database, OF_ANOTHER, use("later")) == "before"


async def test_the_previous_release_finds_keys_stored_by_this_one(database_factory: Make) -> None:
    database = await database_factory("business")
    assert await claim(database, KEY, use("first")) == "first"
    assert await find_as_before(database) == "first"
    # A request through a Webapp of that release has no user.
    assert await find(database, idempotency.key_of("", "k")) == ["first"]
