"""New SQLite files that several processes open at once: each connection waits until it can switch to the log."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidings.installation.settings import DatabaseSettings
from tidings.storage import engine, outages
from tidings.storage.database import Database


@contextlib.contextmanager
def reserved(path: Path) -> Iterator[sqlite3.Connection]:
    """Hold the lock of a connection that is about to write to a file without a write-ahead log."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


async def journal_mode(database: Database) -> str:
    async with database.engine.connect() as connection:
        return str((await connection.exec_driver_sql("PRAGMA journal_mode")).scalar_one())


async def test_a_connection_waits_while_another_is_about_to_write_to_a_new_file(tmp_path: Path) -> None:
    database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/new.db"), "handset")
    try:
        with reserved(tmp_path / "new.db") as holder:
            opening = asyncio.create_task(journal_mode(database))
            # SQLite itself fails such an attempt within a millisecond, whatever its busy time-out is.
            done, _ = await asyncio.wait({opening}, timeout=1)
            assert not done, opening
            holder.execute("ROLLBACK")
            async with asyncio.timeout(30):
                assert await opening == "wal"
    finally:
        await database.close()


async def test_a_permanently_locked_file_is_an_outage_after_the_busy_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.5)
    database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/new.db"), "handset")
    try:
        with reserved(tmp_path / "new.db"):
            started = time.monotonic()
            async with asyncio.timeout(30):
                with pytest.raises(Exception, match="database is locked") as caught:
                    await journal_mode(database)
            assert time.monotonic() - started >= 0.5
            assert outages.is_outage(caught.value)
        assert await journal_mode(database) == "wal"
    finally:
        await database.close()


async def test_connections_wait_for_locks_after_the_switch_to_wal(tmp_path: Path) -> None:
    database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/new.db"), "handset")
    try:
        async with database.engine.connect() as connection:
            assert (await connection.exec_driver_sql("PRAGMA busy_timeout")).scalar_one() == 30_000
    finally:
        await database.close()


# Opens each file when a line arrives, so that all processes open it at the same moment.
_OPENER = """
import asyncio, pathlib, sys
import sqlalchemy as sa
from tidings.installation.settings import DatabaseSettings
from tidings.storage.database import Database

folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])

async def main():
    for number in range(count):
        database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{folder}/{number}.db"), "handset")
        print("ready", flush=True)
        sys.stdin.readline()
        async with database.transaction() as connection:
            await connection.execute(sa.text("CREATE TABLE IF NOT EXISTS things (id INT)"))
            await connection.execute(sa.text("INSERT INTO things VALUES (1)"))
        await database.close()
        print("done", flush=True)

asyncio.run(main())
"""


async def test_six_processes_open_and_write_ten_new_files_concurrently(tmp_path: Path) -> None:
    processes, files = 6, 10
    openers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", _OPENER, str(tmp_path), str(files),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )
        for _ in range(processes)
    ]  # fmt: skip

    async def line(opener: asyncio.subprocess.Process) -> str:
        assert opener.stdout is not None
        assert opener.stderr is not None
        found = (await opener.stdout.readline()).decode().strip()
        return found or (await opener.stderr.read()).decode()[-500:]

    try:
        async with asyncio.timeout(120):
            for number in range(files):
                assert [await line(opener) for opener in openers] == ["ready"] * processes
                for opener in openers:
                    assert opener.stdin is not None
                    opener.stdin.write(b"open\n")
                assert [await line(opener) for opener in openers] == ["done"] * processes
                with contextlib.closing(sqlite3.connect(tmp_path / f"{number}.db")) as file:
                    assert file.execute("SELECT COUNT(*) FROM things").fetchone() == (processes,)
            for opener in openers:
                assert await opener.wait() == 0
    finally:
        for opener in openers:
            if opener.returncode is None:
                opener.kill()
                await opener.wait()


async def test_a_transaction_waits_for_a_locked_file_no_longer_than_its_own_limit(tmp_path: Path) -> None:
    database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/some.db"), "handset")
    try:
        await journal_mode(database)
        with reserved(tmp_path / "some.db") as holder:
            started = time.monotonic()
            with pytest.raises(Exception, match=r"no response within|locked") as caught:
                async with database.transaction(seconds=1):
                    pass
            # SQLite's own limit is 30 s.
            assert time.monotonic() - started < 15
            assert outages.is_outage(caught.value)
            # A later transaction without a limit of its own waits until the file is free.
            waiting = asyncio.create_task(write_nothing(database))
            done, _ = await asyncio.wait({waiting}, timeout=2)
            assert not done
            holder.execute("ROLLBACK")
            await waiting
    finally:
        await database.close()


async def write_nothing(database: Database) -> None:
    async with database.transaction():
        pass
