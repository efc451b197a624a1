"""Of several requests that use one key at once, one is the first."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

from tidings.storage.business import idempotency
from tidings.storage.business.idempotency import MEDIA, UsedKey
from tidings.storage.database import Database

KEY = UsedKey("15550000000", MEDIA, idempotency.hash_of("k"), b"f" * 32, "first", 1_000)


async def test_every_later_use_is_told_the_first_until_it_is_out_of_date(
    database_factory: Callable[[str], Awaitable[Database]],
) -> None:
    database = await database_factory("business")
    later = dataclasses.replace(KEY, fingerprint=b"g" * 32, answer="later", created_at=2_000)
    async with database.transaction() as connection:
        assert await idempotency.claim(connection, KEY, 0) == KEY
    async with database.transaction() as connection:
        assert await idempotency.claim(connection, later, 999) == KEY
        assert await idempotency.claim(connection, KEY, 0) == KEY
        assert await idempotency.claim(connection, later, 1_000) == later
        other = dataclasses.replace(KEY, account="15550000001")
        assert await idempotency.claim(connection, other, 0) == other


async def test_of_several_at_once_all_are_told_the_same(
    database_factory: Callable[[str], Awaitable[Database]],
) -> None:
    database = await database_factory("business")

    async def claim(answer: str) -> UsedKey:
        return await database.persist(
            lambda connection: idempotency.claim(connection, dataclasses.replace(KEY, answer=answer), 0)
        )

    told = await asyncio.gather(*(claim(f"answer {n}") for n in range(8)))
    assert len(set(told)) == 1
