"""Database that moves: another address behind its name, a primary that becomes read-only, a node that is cut off."""

from __future__ import annotations

import asyncio
import socket
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from harness import database_server, metrics
from harness.mariadb import MariaDB
from harness.proxy import Proxy
from tests import statements
from tests.conftest import DatabaseFactory
from tests.storage.test_database import create_things, row, stored, things
from tests.storage.test_outages import of_mysql
from tidings.installation.settings import DatabaseSettings
from tidings.storage import outages
from tidings.storage.database import Database

NAME = "db.example"
# A wait may be longer than its limit by this many times what the same work took before the fault, in the same run:
# other programs on the machine delay it, too.
SLOWER = 3.0


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    """Server for this module, which may become read-only."""
    made = database_server.make(flush_log=0, buffer_pool_mb=32)
    made.start()
    with made.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE moving CHARACTER SET utf8mb4")
        # A user without root's privilege to write on a read-only server.
        cursor.execute("CREATE USER guest@127.0.0.1")
        cursor.execute("GRANT ALL ON moving.* TO guest@127.0.0.1")
    yield made
    made.remove()


class Addresses:
    """Addresses of a name: the resolver's response, and proxies to the server at two of them."""

    def __init__(self, old: Proxy, new: Proxy) -> None:
        self.old, self.new = old, new
        self.current = "127.0.0.2"

    def move(self) -> None:
        """Let the name resolve to the other address from now on."""
        self.current = "127.0.0.3"


@pytest.fixture
async def addresses(server: MariaDB, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Addresses]:
    old, new = Proxy("127.0.0.1", server.port), Proxy("127.0.0.1", server.port)
    old.address = ("127.0.0.2", 0)
    await old.start()
    new.address = ("127.0.0.3", old.address[1])
    await new.start()
    made = Addresses(old, new)
    resolve = socket.getaddrinfo

    def resolve_current(host: Any, *arguments: Any, **named: Any) -> Any:
        return resolve(made.current if host == NAME else host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_current)
    yield made
    await old.stop()
    await new.stop()


@pytest.fixture
def deadline() -> float:
    """Seconds after which the database counts as hung."""
    return 6.0


@pytest.fixture
async def database(server: MariaDB, addresses: Addresses, deadline: float) -> AsyncIterator[Database]:
    await asyncio.to_thread(execute, server, "DROP TABLE IF EXISTS moving.test_things")
    url = f"mysql+aiomysql://guest@{NAME}:{addresses.old.address[1]}/moving"
    made = Database(DatabaseSettings(url, pool_size=5), "business", deadline=deadline)
    await create_things(made)
    # The maximum number of connections of the pool, all of them idle.
    await asyncio.gather(*(insert(made, f"before{n}") for n in range(5)))
    yield made
    await made.close()


def execute(server: MariaDB, *statements: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


async def insert(database: Database, name: str, *, retry_seconds: float = 30.0) -> None:
    async def work(connection: AsyncConnection) -> None:
        await connection.execute(sa.text("REPLACE INTO test_things VALUES (:name, 0, '', '')"), {"name": name})

    await database.persist(work, retry_seconds=retry_seconds)


async def usual_seconds(database: Database) -> float:
    """Return the seconds that five new connections and an insert on each take without a fault."""
    other = Database(database.settings, "business")
    started = asyncio.get_running_loop().time()
    await asyncio.gather(*(insert(other, f"usual{n}") for n in range(5)))
    took = asyncio.get_running_loop().time() - started
    await other.close()
    return took


async def test_a_silent_old_address_costs_one_timeout_instead_of_one_per_connection(
    database: Database, addresses: Addresses
) -> None:
    """The primary's former address is silent, as when its machine is gone. The name resolves to the new one."""
    loop, usual = asyncio.get_running_loop(), await usual_seconds(database)
    addresses.old.shut()
    addresses.move()
    started = loop.time()
    for n in range(5):
        await insert(database, f"after{n}")
    # 6 s for the first insert, which gets no response. For each of the five it would be 30 s.
    assert loop.time() - started < 11.0 + SLOWER * usual
    assert {f"after{n}" for n in range(5)} <= (await stored(database)).keys()


@pytest.mark.parametrize("deadline", [60.0])
async def test_an_old_address_that_closes_connections_causes_no_delay(database: Database, addresses: Addresses) -> None:
    usual = await usual_seconds(database)
    addresses.old.cut()
    addresses.move()
    # Far less than the 60 s of a wait for a response.
    async with asyncio.timeout(5 + SLOWER * usual):
        await asyncio.gather(*(insert(database, f"after{n}") for n in range(5)))


@pytest.mark.parametrize("statement", ["SET GLOBAL read_only = 1", "SET GLOBAL read_only = 1; FLUSH TABLES"])
async def test_a_primary_that_becomes_read_only_loses_all_connections(
    server: MariaDB, database: Database, addresses: Addresses, statement: str
) -> None:
    """Its connections stay open, and what is read there may be outdated: no query is sent there from then on."""
    await asyncio.to_thread(execute, server, *statement.split("; "))
    try:
        with pytest.raises(Exception, match="read-only") as caught:
            await insert(database, "lost", retry_seconds=2.0)
        assert outages.is_outage(caught.value)
        waiting = asyncio.create_task(insert(database, "waits"))
        addresses.move()
        # Later reads go to the new address, though the old one would still respond.
        received = addresses.old.record()
        assert "before0" in await stored(database)
        assert b"SELECT" not in received
    finally:
        await asyncio.to_thread(execute, server, "SET GLOBAL read_only = 0")
    async with asyncio.timeout(30):
        await waiting
    assert "waits" in await stored(database)
    assert b"REPLACE" not in received


async def test_suspect_connections_are_replaced_at_their_next_use(database: Database, addresses: Addresses) -> None:
    addresses.move()
    received = addresses.old.record()
    assert "before0" in await stored(database)
    assert received, "a connection stays where it is"
    database.suspect_connections()
    received = addresses.old.record()
    await asyncio.gather(*(insert(database, f"after{n}") for n in range(5)))
    assert b"after" not in received


NOT_THE_PRIMARY = (1047, 1053, 1290, 1792, 1836, 3169)


@pytest.mark.parametrize("code", NOT_THE_PRIMARY)
async def test_errors_of_a_non_primary_server_close_the_connection_and_are_outages(
    database: Database, code: int
) -> None:
    said = f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'WSREP has not yet prepared node'"
    with pytest.raises(sa.exc.DBAPIError) as caught:
        async with database.transaction() as connection:
            await connection.exec_driver_sql(said)
    assert caught.value.connection_invalidated
    assert outages.is_outage(caught.value)
    assert not outages.may_be_committed(caught.value)


CONFLICTS = (1020, 1213, 3101, 8002, 9007)


@pytest.mark.parametrize("code", CONFLICTS)
def test_a_lost_conflict_with_another_transaction_is_retryable(code: int) -> None:
    assert outages.is_conflict(of_mysql(code))
    assert outages.is_outage(of_mysql(code))


@pytest.mark.parametrize("code", [1047, 1062, 1205, 1290, 1836, 2013])
def test_other_errors_are_not_conflicts(code: int) -> None:
    assert not outages.is_conflict(of_mysql(code))


async def crossing(database: Database, run: Callable[..., Any]) -> tuple[list[str], int]:
    """Run two transactions that wait for each other, and return the result of each and the total number of
    attempts."""
    both = asyncio.Barrier(2)
    tries = 0

    async def cross(first: str, second: str) -> str:
        async def work(connection: AsyncConnection) -> str:
            nonlocal tries
            tries += 1
            change = things.update().values(value=sa.func.concat(things.c.value, first))
            await connection.execute(change.where(things.c.name == first))
            if tries <= 2:
                await both.wait()
            await connection.execute(change.where(things.c.name == second))
            return first

        return str(await run(work))

    async with database.transaction() as connection:
        await connection.execute(things.insert(), [row("x"), row("y")])
    return list(await asyncio.gather(cross("x", "y"), cross("y", "x"))), tries


@pytest.mark.parametrize("database_engine", ["mariadb"])
async def test_a_deadlock_is_retried_and_is_neither_outage_nor_unknown_outcome(
    database_factory: DatabaseFactory,
) -> None:
    for name in ("persist", "commit"):
        made = await database_factory("business")
        await create_things(made)
        count = metrics.value("tidings_db_conflicts_total", family="business")
        done, tries = await crossing(made, getattr(made, name))
        assert (done, tries) == (["x", "y"], 3)
        assert {len(value) for value in (await stored(made)).values()} == {2}
        assert metrics.value("tidings_db_conflicts_total", family="business") == count + 1
        assert await made.is_alive()


class Away(Exception):
    """Error of a connection that the server closed."""


@pytest.mark.parametrize("database_engine", ["mariadb"])
async def test_an_outcome_is_unknown_only_after_an_interrupted_commit(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    await create_things(database)
    breaking = ""

    def cut(connection: sa.Connection) -> None:
        connection.connection.driver_connection._writer.transport.abort()  # type: ignore[union-attr]

    def before_statement(connection: sa.Connection, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT") and breaking == "insert":
            cut(connection)

    def before_commit(connection: sa.Connection) -> None:
        if breaking == "commit":
            cut(connection)

    sa.event.listen(database.engine.sync_engine, "before_cursor_execute", before_statement)
    sa.event.listen(database.engine.sync_engine, "commit", before_commit)

    async def work(connection: AsyncConnection) -> None:
        await connection.execute(things.insert(), [row("a")])

    for breaking, unknown in (("insert", False), ("commit", True)):  # noqa: B007 (the listeners look at it)
        with pytest.raises(Exception) as caught:
            await database.persist(work, retry_seconds=2.0)
        assert outages.may_be_committed(caught.value) is unknown
        assert outages.is_outage(caught.value)
        with pytest.raises(type(caught.value)):
            await database.commit(work)
    # A later attempt that fails for another reason does not make the outcome known.
    breaking, tries = "commit", 0

    async def again(connection: AsyncConnection) -> None:
        nonlocal tries
        tries += 1
        if tries == 2:
            raise Away
        await work(connection)

    with pytest.raises(Away) as away:
        await database.persist(again, retry_seconds=5.0)
    assert outages.may_be_committed(away.value)


async def test_long_values_are_refused_and_texts_kept_in_every_sql_mode(
    server: MariaDB,
) -> None:
    """Managed databases truncate values that are too long for a column, and some accept no backslash before a
    quote."""
    modes = ("", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES,PIPES_AS_CONCAT")
    for mode in modes:
        await asyncio.to_thread(
            execute, server, "DROP TABLE IF EXISTS moving.test_things", f"SET GLOBAL sql_mode = '{mode}'"
        )
        database = Database(DatabaseSettings(server.url("moving")), "business")
        try:
            await create_things(database)
            text = "a\\' OR 1=1 -- \\"
            async with database.transaction() as connection:
                await connection.execute(things.insert(), [row("a", text)])
            assert await stored(database) == {"a": text}
            with pytest.raises(sa.exc.DBAPIError) as caught:
                async with database.transaction() as connection:
                    await connection.execute(things.insert(), [row("b" * 21)])
            assert outages.refuses_row(caught.value)
        finally:
            await database.close()


async def test_a_server_warning_causes_no_extra_query(server: MariaDB) -> None:
    """MySQL 8 has a warning for every statement that updates existing rows."""
    database = Database(DatabaseSettings(server.url("moving")), "business")
    try:
        with statements.recorded("SHOW WARNINGS") as noted, warnings.catch_warnings():
            warnings.simplefilter("error")
            async with database.reading() as connection:
                assert (await connection.exec_driver_sql("SELECT CAST('x' AS SIGNED)")).scalar() == 0
                said = await connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Com_show_warnings'")
                assert said.one()[1] == "0"
        assert not noted
    finally:
        await database.close()
