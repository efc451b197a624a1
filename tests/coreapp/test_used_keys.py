"""A process uses its filter of used keys only while the filter certainly contains all of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa

from coreapp import used_keys
from coreapp.used_keys import UsedKeys
from tests import statements
from tests.coreapp.signals import TIMEOUT, soon
from tests.manual_clock import ManualClock
from tidings.storage.business import idempotency
from tidings.storage.business.idempotency import MEDIA, MESSAGES, IdempotencyKey, UsedKey
from tidings.storage.business.shards import Lease
from tidings.storage.database import Connection, Database

ACCOUNT, OTHER = "15550000000", "15550000001"
Make = Callable[[str], Awaitable[Database]]


def key(text: str, username: str = "admin") -> IdempotencyKey:
    return idempotency.key_of(username, text)


FRESH = key("fresh")


async def save(database: Database, *forms: bytes, account: str = ACCOUNT, resource: str = MESSAGES) -> None:
    rows = [UsedKey(account, resource, form, b"f" * 32, "id", 1_000, "admin") for form in forms]
    async with database.transaction() as connection:
        await idempotency.save(connection, rows)


async def settled() -> None:
    """Return at once: no change is being committed."""


def lease(shard: int = 0, *, shards: int = 1, epoch: int = 1, layout: int = 0) -> Lease:
    return Lease(shard, "node", epoch, shards, layout)


@pytest.fixture
async def database(database_factory: Make) -> Database:
    return await database_factory("business")


@pytest.fixture
def used(database: Database) -> UsedKeys:
    return UsedKeys(database, ManualClock(), account=ACCOUNT)


async def test_once_the_table_is_read_only_absent_keys_are_fresh(database: Database, used: UsedKeys) -> None:
    # Three pages.
    many = [key(f"k{n}") for n in range(1_200)]
    await save(database, *(one.shared for one in many))
    await save(database, key("by its user").own)
    await save(database, FRESH.shared, account=OTHER)
    await save(database, FRESH.shared, resource=MEDIA)
    used.follow({lease(): settled})
    assert not used.is_fresh(FRESH)
    assert await used.run_once()
    assert used.complete.is_set()
    assert used.is_fresh(FRESH)
    assert not any(used.is_fresh(one) for one in (*many, key("by its user")))
    # The shared form counts for every user.
    assert not used.is_fresh(key("k7", "anna"))


async def test_no_key_is_fresh_while_the_table_is_being_read(database: Database, used: UsedKeys) -> None:
    await save(database, *(key(f"k{n}").shared for n in range(1_200)))
    used.follow({lease(): settled})
    with statements.recorded("FROM idempotency_keys") as pages:
        reading = asyncio.create_task(used.run_once())
        await soon(lambda: len(pages) == 2)
        assert used.memory > 0
        assert not used.is_fresh(FRESH)
        assert await reading
    assert len(pages) == 3
    assert used.is_fresh(FRESH)


async def test_a_used_key_is_not_fresh_whatever_the_outcome_of_its_commit(used: UsedKeys) -> None:
    used.follow({lease(): settled})
    await used.run_once()
    for form in (FRESH.shared, FRESH.own):
        used.follow({})
        used.follow({lease(): settled})
        await used.run_once()
        assert used.is_fresh(FRESH)
        used.add(form)
        assert not used.is_fresh(FRESH)


async def test_the_table_is_read_after_commits_in_progress(database: Database, used: UsedKeys) -> None:
    waits, on_disk = asyncio.Event(), asyncio.Event()

    async def settle() -> None:
        waits.set()
        await on_disk.wait()
        await save(database, FRESH.shared)

    used.follow({lease(): settle})
    with statements.recorded("SELECT idempotency_keys") as pages:
        reading = asyncio.create_task(used.run_once())
        await waits.wait()
        assert pages == []
        on_disk.set()
        assert await reading
    assert len(pages) == 1
    assert not used.is_fresh(FRESH)


async def test_a_failed_journal_leaves_the_filter_incomplete(used: UsedKeys) -> None:
    async def fail() -> None:
        raise ConnectionError("the journal is broken")

    used.follow({lease(): fail})
    assert not await used.run_once()
    assert not used.is_fresh(FRESH)


class Away(Database):
    """Database whose server refuses the next `refusals` connections."""

    refusals = 0

    @contextlib.asynccontextmanager
    async def reading(self, **limits: Any) -> AsyncIterator[Connection]:
        if self.refusals:
            self.refusals -= 1
            raise sa.exc.OperationalError("SELECT", {}, pymysql.err.OperationalError(2003, "cannot connect"))
        async with super().reading(**limits) as connection:
            yield connection


async def test_no_key_is_fresh_during_a_database_outage_and_the_table_is_read_afterwards(database: Database) -> None:
    away = Away(database.settings, "business", max_retry_seconds=0.0)
    used, stop = UsedKeys(away, ManualClock(), account=ACCOUNT), asyncio.Event()
    await save(database, key("used").shared)
    away.refusals = 1
    used.follow({lease(): settled})
    assert not await used.run_once()
    assert not used.is_fresh(FRESH)
    away.refusals = 1
    running = asyncio.create_task(used.run(stop))
    async with asyncio.timeout(TIMEOUT):
        await used.complete.wait()
        assert away.refusals == 0
        assert used.is_fresh(FRESH)
        assert not used.is_fresh(key("used"))
        stop.set()
        await running
    await away.close()


@pytest.mark.parametrize(
    "leases",
    [
        [],
        [lease(0, shards=2)],
        [lease(1, shards=2)],
        [lease(0, shards=2), lease(1, shards=2, layout=1)],
        [lease(0, shards=3), lease(2, shards=3)],
    ],
)
async def test_no_key_is_fresh_without_the_leases_of_all_shards(used: UsedKeys, leases: list[Lease]) -> None:
    used.follow(dict.fromkeys(leases, settled))
    assert await used.run_once()
    used.add(FRESH.shared)
    assert not used.is_fresh(key("another"))
    assert used.memory == 0


@pytest.mark.parametrize("then", [[lease(0, shards=2)], [lease(0, shards=2), lease(1, shards=2, epoch=2)]])
async def test_a_lost_or_reopened_shard_makes_the_filter_incomplete(
    database: Database, used: UsedKeys, then: list[Lease]
) -> None:
    both = [lease(0, shards=2), lease(1, shards=2)]
    used.follow(dict.fromkeys(both, settled))
    await used.run_once()
    # The shards are the same, so nothing changes.
    used.follow(dict.fromkeys(reversed(both), settled))
    assert used.is_fresh(FRESH)
    used.follow(dict.fromkeys(then, settled))
    assert not used.is_fresh(FRESH)
    # Written by the other owner.
    await save(database, FRESH.shared)
    used.follow(dict.fromkeys([lease(0, shards=2), lease(1, shards=2, epoch=3)], settled))
    assert await used.run_once()
    assert not used.is_fresh(FRESH)
    assert used.is_fresh(key("another"))


async def test_a_shard_lost_during_the_table_read_ends_the_read(database: Database, used: UsedKeys) -> None:
    await save(database, *(key(f"k{n}").shared for n in range(1_200)))
    used.follow(dict.fromkeys([lease(0, shards=2), lease(1, shards=2)], settled))
    with statements.recorded("FROM idempotency_keys") as pages:
        reading = asyncio.create_task(used.run_once())
        await soon(lambda: len(pages) == 1)
        used.follow({lease(0, shards=2): settled})
        assert await reading
    assert len(pages) < 3
    assert not used.complete.is_set()


async def test_a_stop_ends_the_pause_between_two_pages(
    database: Database, used: UsedKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pauses of hours.
    monkeypatch.setattr(used_keys, "PAUSE_SHARE", 1e9)
    await save(database, *(key(f"k{n}").shared for n in range(1_200)))
    stop = asyncio.Event()
    used.follow({lease(): settled})
    with statements.recorded("FROM idempotency_keys") as pages:
        running = asyncio.create_task(used.run(stop))
        await soon(lambda: len(pages) == 1)
        stop.set()
        async with asyncio.timeout(TIMEOUT):
            await running
    assert len(pages) == 1
    assert not used.complete.is_set()


async def test_a_process_with_all_shards_of_one_number_has_a_filter_for_it(database: Database) -> None:
    used = UsedKeys(database, ManualClock(), account=OTHER, is_first=False)
    used.follow({lease(33, shards=2): settled})
    await used.run_once()
    assert not used.is_fresh(FRESH)
    used.follow({lease(32, shards=2): settled, lease(33, shards=2): settled})
    await used.run_once()
    assert used.is_fresh(FRESH)
