"""Only an error that proves a row bad counts against the row. Every other error is an outage, which is waited
out."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from harness import database_server, polling
from harness.mariadb import MariaDB
from tests.conftest import DatabaseFactory
from tests.storage.test_database import create_things, row, stored, things
from tidings.installation.settings import DatabaseSettings
from tidings.storage import outages
from tidings.storage.database import Database, insert_or_update


def of_sqlite(code: int | None, text: str, kind: type[sqlite3.Error] = sqlite3.OperationalError) -> Exception:
    error = kind(text)
    if code is not None:
        error.sqlite_errorcode = code
    return wrapped(error)


def of_mysql(code: int) -> Exception:
    """Return the error that the driver makes from the server's packet."""
    try:
        pymysql.err.raise_mysql_exception(b"\xff" + code.to_bytes(2, "little") + b"#HY000text")
    except pymysql.err.MySQLError as error:
        return wrapped(error)
    raise AssertionError("it raises")


def wrapped(error: Exception) -> Exception:
    kind = {sqlite3.IntegrityError: sa.exc.IntegrityError, sqlite3.DataError: sa.exc.DataError}.get(
        type(error),  # type: ignore[arg-type]
        sa.exc.OperationalError,
    )
    return kind("INSERT …", {}, error)


OUTAGES = {
    "disk full (SQLite)": of_sqlite(sqlite3.SQLITE_FULL, "database or disk is full"),
    "I/O error": of_sqlite(sqlite3.SQLITE_IOERR_WRITE, "disk I/O error"),
    "cannot open": of_sqlite(sqlite3.SQLITE_CANTOPEN, "unable to open database file"),
    "read-only file": of_sqlite(sqlite3.SQLITE_READONLY, "attempt to write a readonly database"),
    "locked": of_sqlite(sqlite3.SQLITE_BUSY, "database is locked"),
    "malformed": of_sqlite(sqlite3.SQLITE_CORRUPT, "database disk image is malformed"),
    "table taken away": of_sqlite(sqlite3.SQLITE_ERROR, "no such table: envelopes"),
    "transaction ended by a full disk": of_sqlite(
        sqlite3.SQLITE_ERROR, "cannot commit - no transaction is active", sqlite3.OperationalError
    ),
    "closed under us": of_sqlite(None, "Cannot operate on a closed database.", sqlite3.ProgrammingError),
    **{
        str(code): of_mysql(code)
        for code in (
            *(3, 126, 1016, 1021, 1026, 1030, 1037, 1040, 1041, 1044, 1045, 1049, 1053, 1114, 1129, 1142, 1146, 1194),
            *(1203, 1205, 1213, 1226, 1290, 1317, 1792, 1836, 1877, 1927, 1969, 3024, 3100, 3159, 9999),
        )
    },
    "lost": wrapped(pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")),
    "refused": wrapped(pymysql.err.OperationalError(2003, "Can't connect to MySQL server")),
    "no number": wrapped(pymysql.err.InterfaceError(0, "Not connected")),
    "out of step": wrapped(pymysql.err.InternalError("Packet sequence number wrong - got 3 expected 1")),
    "pool": sa.exc.TimeoutError("QueuePool limit reached"),
    "unanswered": outages.DatabaseTimeout("no response within 10 s"),
    "no slot": outages.PoolExhausted("all 10 connections were in use for 5 s"),
    "reset": ConnectionResetError(),
    "cut off": asyncio.IncompleteReadError(b"", 4),
}
REFUSALS = {
    "duplicate (SQLite)": of_sqlite(sqlite3.SQLITE_CONSTRAINT_UNIQUE, "UNIQUE constraint", sqlite3.IntegrityError),
    "too big (SQLite)": of_sqlite(sqlite3.SQLITE_TOOBIG, "string or blob too big", sqlite3.DataError),
    "no such column": of_sqlite(sqlite3.SQLITE_ERROR, "no such column: x"),
    "syntax": of_sqlite(sqlite3.SQLITE_ERROR, 'near "FORM": syntax error'),
    "cannot be bound": of_sqlite(None, "Error binding parameter 1: type 'set'", sqlite3.ProgrammingError),
    **{str(code): of_mysql(code) for code in (1048, 1054, 1062, 1064, 1118, 1153, 1264, 1366, 1406, 1452, 4025)},
}


@pytest.mark.parametrize("error", OUTAGES.values(), ids=OUTAGES.keys())
def test_an_error_unrelated_to_the_row_is_an_outage(error: Exception) -> None:
    assert outages.is_outage(error)
    assert not outages.refuses_row(error)


@pytest.mark.parametrize("error", REFUSALS.values(), ids=REFUSALS.keys())
def test_an_error_of_the_row_or_the_statement_is_no_outage(error: Exception) -> None:
    assert outages.refuses_row(error)
    assert not outages.is_outage(error)


def test_an_error_outside_the_database_is_neither_an_outage_nor_a_refused_row() -> None:
    for error in (KeyError("x"), TimeoutError(), sa.exc.InvalidRequestError("x")):
        assert not outages.is_outage(error)
        assert not outages.refuses_row(error)
        assert outages.describe(error) is None


async def insert(database: Database, name: str, value: str = "", *, retry_seconds: float = 30.0) -> None:
    async def work(connection: AsyncConnection) -> None:
        statement = insert_or_update(connection, things, ("value",))
        await connection.execute(statement, [row(name, value)])

    await database.persist(work, retry_seconds=retry_seconds)


async def test_a_value_that_violates_a_constraint_counts_against_its_row(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    await create_things(database)
    async with asyncio.timeout(30):
        with pytest.raises(Exception) as caught:
            async with database.transaction() as connection:
                await connection.execute(things.insert(), [row("a") | {"data": None}])
    assert outages.refuses_row(caught.value)


async def test_writes_wait_out_a_full_disk_during_which_the_database_counts_as_down(tmp_path: Path) -> None:
    database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/x.db", pool_size=1), "business")
    await create_things(database)

    async def limit(pages: int) -> None:
        async with database.engine.connect() as connection:
            await connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

    try:
        await insert(database, "before")
        await limit(1)
        filling = [asyncio.create_task(insert(database, f"n{n}", "x" * 50)) for n in range(200)]
        with pytest.raises(sa.exc.OperationalError, match="full") as caught:
            async with database.transaction() as connection:
                await connection.execute(things.insert(), [row(f"m{n}", "x" * 50) for n in range(500)])
        assert outages.is_outage(caught.value)
        assert not await database.is_alive(), "it still serves reads"
        await limit(1_000_000)
        await asyncio.gather(*filling)
        assert await stored(database) == {"before": ""} | {f"n{n}": "x" * 50 for n in range(200)}
        assert await database.is_alive()
    finally:
        await database.close()


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    """Server for this module, which may refuse and hang."""
    made = database_server.make(flush_log=0, buffer_pool_mb=32)
    made.start()
    with made.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE rare CHARACTER SET utf8mb4")
    yield made
    made.remove()


@pytest.fixture
async def restricted_database(server: MariaDB) -> AsyncIterator[Database]:
    """Database whose user the server may reject."""
    await asyncio.to_thread(execute, server, "DROP USER IF EXISTS guest@127.0.0.1", "CREATE USER guest@127.0.0.1")
    await asyncio.to_thread(execute, server, "GRANT ALL ON rare.* TO guest@127.0.0.1")
    await asyncio.to_thread(execute, server, "DROP TABLE IF EXISTS rare.test_things")
    url = server.url("rare").replace("root@", "guest@")
    database = Database(DatabaseSettings(url, pool_size=2), "business", deadline=2.0)
    await create_things(database)
    yield database
    await database.close()


def execute(server: MariaDB, *statements: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def end_connections(server: MariaDB) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE user = 'guest'")
        for (number,) in cursor.fetchall():
            cursor.execute(f"KILL {number}")


REFUSING = {
    "password changed": (
        "ALTER USER guest@127.0.0.1 IDENTIFIED BY 'other'",
        "ALTER USER guest@127.0.0.1 IDENTIFIED BY ''",
    ),
    "rights taken": ("REVOKE ALL ON rare.* FROM guest@127.0.0.1", "GRANT ALL ON rare.* TO guest@127.0.0.1"),
    "account locked": ("ALTER USER guest@127.0.0.1 ACCOUNT LOCK", "ALTER USER guest@127.0.0.1 ACCOUNT UNLOCK"),
    "questions limited": (
        "ALTER USER guest@127.0.0.1 WITH MAX_QUERIES_PER_HOUR 1",
        "ALTER USER guest@127.0.0.1 WITH MAX_QUERIES_PER_HOUR 0",
    ),
    "read-only": ("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"),
}


@pytest.mark.parametrize(("begin", "end"), REFUSING.values(), ids=REFUSING.keys())
async def test_writes_wait_until_a_refusing_server_recovers(
    server: MariaDB, restricted_database: Database, begin: str, end: str
) -> None:
    await insert(restricted_database, "before")
    await asyncio.to_thread(execute, server, begin)
    try:
        await asyncio.to_thread(end_connections, server)
        with pytest.raises(Exception) as caught:
            await insert(restricted_database, "lost", retry_seconds=0.0)
        assert outages.is_outage(caught.value)
        assert not await restricted_database.is_alive()
        waiting = asyncio.create_task(insert(restricted_database, "waits"))
    finally:
        await asyncio.to_thread(execute, server, end)
    async with asyncio.timeout(30):
        await waiting
    assert await stored(restricted_database) == {"before": "", "waits": ""}


async def test_a_transaction_with_a_killed_query_is_retried(server: MariaDB, restricted_database: Database) -> None:
    sent = asyncio.Event()
    tries = 0

    async def work(connection: AsyncConnection) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            number = (await connection.execute(sa.text("SELECT connection_id()"))).scalar_one()
            sleeping = asyncio.ensure_future(connection.execute(sa.text("SELECT SLEEP(30) FROM test_things")))
            await asyncio.sleep(0)
            await asyncio.to_thread(kill_when_asleep, server, number)
            sent.set()
            await sleeping
        await connection.execute(things.update().values(value="done"))

    await insert(restricted_database, "a")
    async with asyncio.timeout(30):
        await restricted_database.persist(work)
    assert (tries, sent.is_set()) == (2, True)
    assert await stored(restricted_database) == {"a": "done"}


async def test_locked_tables_are_an_outage_although_the_server_responds(
    server: MariaDB, restricted_database: Database
) -> None:
    assert await restricted_database.is_alive()
    locking = await asyncio.to_thread(server.connect, "rare")
    try:
        with locking.cursor() as cursor:
            cursor.execute("LOCK TABLES test_things WRITE, schema_business WRITE")
        with pytest.raises(outages.DatabaseTimeout):
            await insert(restricted_database, "lost", retry_seconds=0.3)
        assert not await restricted_database.is_alive(timeout=0.3)
    finally:
        locking.close()
    await insert(restricted_database, "after")


def kill_when_asleep(server: MariaDB, number: int) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        found: Any = None
        while not found:
            cursor.execute(
                "SELECT 1 FROM information_schema.processlist WHERE id = %s AND info LIKE 'SELECT SLEEP%%'", (number,)
            )
            found = cursor.fetchone()
        cursor.execute(f"KILL QUERY {number}")


@pytest.fixture
async def hang(server: MariaDB) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Function that stops the server, which keeps its connections and sends no response until the test resumes
    it."""

    def send(number: signal.Signals) -> None:
        assert server.pid is not None
        os.kill(server.pid, number)

    def stands_still() -> bool:
        threads = Path(f"/proc/{server.pid}/task").iterdir()
        return all((thread / "stat").read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)

    async def stop() -> None:
        send(signal.SIGSTOP)
        # One of its threads may still run on another core and respond.
        await polling.until(stands_still)

    yield stop
    send(signal.SIGCONT)


async def test_a_hanging_server_delays_no_call_beyond_the_deadline(
    restricted_database: Database, server: MariaDB, hang: Callable[[], Awaitable[None]]
) -> None:
    loop = asyncio.get_running_loop()
    patient = Database(restricted_database.settings, "business", deadline=6.0)
    await asyncio.gather(*(insert(patient, f"n{n}") for n in range(4)))
    await hang()
    started = loop.time()

    async def read() -> None:
        async with patient.reading() as connection:
            await connection.execute(sa.text("SELECT 1"))

    # More calls than connections: those that wait for a connection wait no longer than those that have one.
    results = await asyncio.gather(*(read() for _ in range(8)), return_exceptions=True)
    assert [type(result) for result in results] == [outages.DatabaseTimeout] * 2 + [outages.PoolExhausted] * 6
    assert 5.9 < loop.time() - started < 11.0
    started = loop.time()
    with pytest.raises(outages.DatabaseTimeout):
        await insert(patient, "lost", retry_seconds=1.0)
    assert loop.time() - started < 5.0
    waiting = asyncio.create_task(insert(patient, "waits"))
    started = loop.time()
    assert not await patient.is_alive(timeout=0.5)
    assert loop.time() - started < 5.0
    assert server.pid is not None
    os.kill(server.pid, signal.SIGCONT)
    async with asyncio.timeout(30):
        await waiting
    assert set(await stored(patient)) >= {"n0", "n1", "n2", "n3", "waits"}
    await patient.close()


async def test_concurrent_health_checks_share_one_query(database_factory: DatabaseFactory) -> None:
    settings = (await database_factory("business")).settings
    for probe_seconds, requests in ((60.0, 1), (0.0, 2)):
        database = Database(settings, "business", probe_seconds=probe_seconds)
        sent: list[str] = []

        def note(connection: sa.Connection, cursor: Any, statement: str, *_: Any, sent: list[str] = sent) -> None:
            if "version_num" in statement:
                sent.append(statement)

        sa.event.listen(database.engine.sync_engine, "before_cursor_execute", note)
        assert await asyncio.gather(*(database.is_alive() for _ in range(20))) == [True] * 20
        assert await database.is_alive()
        assert len(sent) == requests
        await database.close()
