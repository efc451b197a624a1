"""A busy connection pool is overload: it is no sign of an outage, and no connection is replaced for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings.installation.settings import DatabaseSettings
from tidings.storage import outages
from tidings.storage.database import Connection, Database


@pytest.fixture
async def busy(database_factory: DatabaseFactory) -> AsyncIterator[Database]:
    """Database with two connections."""
    url = (await database_factory("business")).settings.url
    database = Database(DatabaseSettings(url, pool_size=2), "business", deadline=60.0, probe_seconds=0.0)
    yield database
    await database.close()


def connects_of(database: Database) -> list[object]:
    """Return a list to which every new connection of the pool is added."""
    made: list[object] = []
    sa.event.listen(database.engine.sync_engine, "connect", lambda connection, record: made.append(record))
    return made


async def hold(database: Database, held: asyncio.Barrier, release: asyncio.Event) -> None:
    async with database.reading() as connection:
        await connection.execute(sa.text("SELECT 1"))
        await held.wait()
        await release.wait()


async def not_begun(transaction: contextlib.AbstractAsyncContextManager[Connection]) -> None:
    with pytest.raises(outages.PoolExhausted):
        async with transaction:
            pytest.fail("there was no connection")


async def test_waiting_for_a_connection_replaces_no_connection(busy: Database) -> None:
    made = connects_of(busy)
    for _ in range(2):
        held, release = asyncio.Barrier(3), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(hold(busy, held, release))
            await held.wait()
            assert len(made) == 2
            # Twice the time after which a vanished database is detected (1.5 s).
            waits = [busy.reading(seconds=3.2), busy.reading(seconds=3.2), busy.transaction(seconds=3.2)]
            await asyncio.gather(*map(not_begun, waits))
            release.set()


async def test_a_busy_pool_of_a_responding_database_is_no_outage(busy: Database) -> None:
    assert await busy.is_alive(timeout=20)
    stop = asyncio.Event()

    async def work() -> None:
        while not stop.is_set():
            async with busy.reading() as connection:
                await connection.execute(sa.text("SELECT 1"))

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(work())
        for _ in range(5):
            assert await busy.is_alive(timeout=20)
        stop.set()


async def test_a_write_that_got_no_connection_does_not_count_against_the_database(busy: Database) -> None:
    held, release = asyncio.Barrier(3), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(hold(busy, held, release))
        await held.wait()
        await not_begun(busy.transaction(seconds=0.2))
        release.set()
    assert await busy.is_alive(timeout=20)


async def test_a_waiting_caller_gets_the_next_free_connection(busy: Database) -> None:
    held, release = asyncio.Barrier(3), asyncio.Event()

    async def read() -> int:
        async with busy.reading() as connection:
            return int((await connection.execute(sa.text("SELECT 1"))).scalar_one())

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(hold(busy, held, release))
        await held.wait()
        pending = [group.create_task(read()) for _ in range(10)]
        await asyncio.sleep(0)
        cancelled = pending.pop(0)
        cancelled.cancel()
        release.set()
    assert [task.result() for task in pending] == [1] * 9
