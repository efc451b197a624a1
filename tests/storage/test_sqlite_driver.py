"""The cheaper cursors of SQLite change nothing about results, errors or cancelled transactions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiosqlite
import pytest
import sqlalchemy as sa

from tidings.installation.settings import DatabaseSettings
from tidings.storage import engine, sqlite_driver
from tidings.storage.database import Database

table = sa.Table("things", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String))


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path / 'things.db'}", pool_size=1), "handset")
    async with made.engine.begin() as connection:
        await connection.run_sync(table.metadata.create_all)
    yield made
    await made.close()


async def test_results_row_counts_and_returned_rows_are_unchanged(database: Database) -> None:
    async with database.transaction() as connection:
        inserted = await connection.execute(table.insert().returning(table.c.id), [{"name": "a"}, {"name": "b"}])
        assert list(inserted.scalars()) == [1, 2]
        one = await connection.execute(table.insert(), {"name": "c"})
        assert one.inserted_primary_key == (3,)
        many = await connection.execute(table.insert(), [{"name": "d"}, {"name": "e"}])
        assert many.rowcount == 2
        assert (await connection.execute(table.update().where(table.c.id > 3).values(name="z"))).rowcount == 2
        rows = await connection.execute(sa.select(table.c.id, table.c.name).order_by(table.c.id))
        assert rows.keys() == ["id", "name"]
        assert [tuple(row) for row in rows] == [(1, "a"), (2, "b"), (3, "c"), (4, "z"), (5, "z")]
        assert (await connection.execute(sa.select(table).where(table.c.id == 9))).first() is None


async def test_an_error_rolls_back_and_leaves_a_usable_connection(database: Database) -> None:
    with pytest.raises(sa.exc.IntegrityError):
        async with database.transaction() as connection:
            await connection.execute(table.insert(), {"id": 1, "name": "a"})
            await connection.execute(table.insert(), {"id": 1, "name": "b"})
    async with database.transaction() as connection:
        assert (await connection.execute(sa.select(sa.func.count()).select_from(table))).scalar() == 0


async def test_a_transaction_cancelled_at_any_event_loop_iteration_leaves_no_lock(database: Database) -> None:
    async def work() -> None:
        async with database.transaction() as connection:
            await connection.execute(table.insert(), [{"name": "x"}])
            await connection.execute(table.insert(), [{"name": "y"}])

    for turns in range(60):
        task = asyncio.create_task(work())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(30), database.transaction() as connection:
            count = (await connection.execute(sa.select(sa.func.count()).select_from(table))).scalar()
            assert count is not None
            assert count % 2 == 0


async def test_a_connection_closes_even_when_its_close_is_cancelled_twice(tmp_path: Path) -> None:
    connection = await aiosqlite.connect(tmp_path / "file.db")
    sqlite_driver.install(connection)
    closing = asyncio.create_task(connection.close())
    started = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(started.set_result, None)
    await started
    connection.stop()
    closing.cancel()
    done, _ = await asyncio.wait([closing], timeout=10)
    assert done


async def test_a_process_that_exits_does_not_delete_the_wal_of_our_connections(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    ours = Database(DatabaseSettings(f"sqlite+aiosqlite:///{path}", pool_size=3), "handset")
    try:
        async with ours.engine.begin() as connection:
            await connection.run_sync(table.metadata.create_all)
        # Connections opened while others exist.
        async with ours.transaction() as first, ours.reading() as second:
            await first.execute(table.insert(), {"name": "a"})
            await second.execute(sa.select(table))
        log = path.with_name(path.name + "-wal").stat().st_ino
        look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM things'); c.close()"
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", look, path], check=True)
        assert path.with_name(path.name + "-wal").stat().st_ino == log
        async with ours.transaction() as connection:
            await connection.execute(table.insert(), {"name": "b"})
        # Through a separate process: committed rows are visible to other connections.
        read = (
            "import sqlite3, sys; print(len(sqlite3.connect(sys.argv[1]).execute('SELECT * FROM things').fetchall()))"
        )
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", read, path], check=True, capture_output=True, text=True
        )
        assert done.stdout == "2\n"
    finally:
        await ours.close()


async def test_the_thread_of_a_connection_that_fails_has_ended_when_the_error_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops: list[asyncio.Future[object] | None] = []
    stop = aiosqlite.Connection.stop

    def noted(connection: aiosqlite.Connection) -> asyncio.Future[object] | None:
        stops.append(stop(connection))
        return stops[-1]

    monkeypatch.setattr(aiosqlite.Connection, "stop", noted)
    pool = engine.make(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}"))
    with pytest.raises(sa.exc.OperationalError, match="unable to open database file"):
        async with pool.connect():
            pass
    assert [stopped is not None and stopped.done() for stopped in stops] == [True]
    await pool.dispose()
