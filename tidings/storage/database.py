"""One connection pool and the transactions on it, the same on SQLite and on MySQL or MariaDB."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import pymysql
import sqlalchemy as sa
from prometheus_client import Counter, Histogram
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tidings.runtime.settings import DatabaseSettings, describe_url
from tidings.storage import sqlite_driver

Value = TypeVar("Value")

# What `transaction` and `reading` hand out, for the signatures of code outside this package.
Connection: TypeAlias = AsyncConnection
# Everything that a question can raise because of the database, for handlers outside this package.
DatabaseError = sa.exc.SQLAlchemyError

log = logging.getLogger(__name__)

COMMITS = Counter("tidings_db_commits_total", "Transactions committed", ["family"])
COMMIT_SECONDS = Histogram(
    "tidings_db_transaction_seconds",
    "From the begin of a writing transaction to the end of its commit",
    ["family"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1, 5),
)
OUTAGES = Counter("tidings_db_retries_total", "Transactions tried again because the database was away", ["family"])

# Server gone, shutting down, lost during query, refused, killed; lock wait timeout; deadlock; read-only fail-over.
_MYSQL_TRANSIENT = {
    1040,
    1053,
    1158,
    1159,
    1160,
    1161,
    1205,
    1213,
    1290,
    1792,
    1927,
    2002,
    2003,
    2006,
    2013,
    2014,
    2055,
}


class Database:
    """The pool of one family of tables.

    Writing transactions on SQLite begin with `BEGIN IMMEDIATE`, so that two of them queue rather than collide.
    """

    def __init__(self, settings: DatabaseSettings, family: str, *, idle_timeout: float | None = None) -> None:
        """idle_timeout: seconds after which a MySQL server ends a connection of ours that asks nothing, even within a
        transaction, so that a process that hangs does not keep its locks."""
        self.settings = settings
        self.family = family
        self.engine: AsyncEngine = _make_engine(settings, idle_timeout)
        self._commits = COMMITS.labels(family)
        self._seconds = COMMIT_SECONDS.labels(family)
        self._retries = OUTAGES.labels(family)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A writing transaction: committed when the block ends, rolled back when it raises."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with self.engine.connect() as connection, connection.begin():
            yield connection
            if self.settings.commit_delay:
                await asyncio.sleep(self.settings.commit_delay)
        self._commits.inc()
        self._seconds.observe(loop.time() - started)

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads; it takes no lock that a writer would wait for."""
        async with self.engine.connect() as connection:
            await connection.execution_options(tidings_read_only=True)
            async with connection.begin():
                yield connection

    async def persist(self, work: Callable[[AsyncConnection], Awaitable[Value]], *, patience: float = 60.0) -> Value:
        """Run `work` in a writing transaction; while the database is away or busy, try again for `patience` seconds.

        A commit whose outcome is unknown is tried again too, so `work` must be idempotent: running it on top of its
        own earlier success must succeed and change nothing. Raises what the last try raised.
        """
        return await self._patiently(self.transaction, work, patience)

    async def query(self, work: Callable[[AsyncConnection], Awaitable[Value]], *, patience: float = 60.0) -> Value:
        """Run `work` in a transaction that only reads; tried again as by `persist`."""
        return await self._patiently(self.reading, work, patience)

    async def _patiently(
        self,
        begin: Callable[[], contextlib.AbstractAsyncContextManager[AsyncConnection]],
        work: Callable[[AsyncConnection], Awaitable[Value]],
        patience: float,
    ) -> Value:
        deadline = asyncio.get_running_loop().time() + patience
        delay = 0.02
        while True:
            try:
                async with begin() as connection:
                    return await work(connection)
            except Exception as error:
                if not is_transient(error) or asyncio.get_running_loop().time() + delay > deadline:
                    raise
                self._retries.inc()
                log.warning("database.retrying", extra={"family": self.family, "error": _brief(error)})
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))  # noqa: S311
            delay = min(delay * 2, 1.0)

    async def is_alive(self, *, timeout: float = 2.0) -> bool:
        """Does the database answer within so many seconds?"""
        try:
            async with asyncio.timeout(timeout), self.reading() as connection:
                await connection.execute(sa.text("SELECT 1"))
        except (sa.exc.SQLAlchemyError, OSError, TimeoutError, asyncio.IncompleteReadError):
            return False
        return True

    async def close(self) -> None:
        """Close every pooled connection."""
        await self.engine.dispose()

    def __repr__(self) -> str:
        return f"Database({self.family}, {describe_url(self.settings.url)})"


def is_transient(error: BaseException) -> bool:
    """Is this an outage, a deadlock or a lock time-out, so that the same transaction may succeed later?"""
    if isinstance(error, sa.exc.DBAPIError):
        if error.connection_invalidated:
            return True
        original = error.orig
        if original is not None and original.args and isinstance(original.args[0], int):
            return original.args[0] in _MYSQL_TRANSIENT
        text = str(original)
        return "database is locked" in text or "database table is locked" in text
    if isinstance(error, sa.exc.TimeoutError):
        return True
    return isinstance(error, ConnectionError | asyncio.IncompleteReadError)


def describe_outage(error: BaseException) -> str | None:
    """One line for a person when `error` says that the database cannot be used; `None` for anything else."""
    if isinstance(error, sa.exc.DBAPIError | sa.exc.TimeoutError | pymysql.err.MySQLError):
        return f"the database cannot be used: {_brief(error)}"
    return None


def insert_or_update(
    connection: AsyncConnection, table: sa.Table, key: tuple[str, ...], update: tuple[str, ...]
) -> sa.Executable:
    """An insert that overwrites the columns `update` where `key` is there already.

    Execute it with a list of rows that give every column of the table: it is one statement for all of them.
    """
    if connection.dialect.name == "sqlite":
        return _sqlite_upsert(table, key, update)
    return _mysql_upsert(table, update)


def insert_or_ignore(connection: AsyncConnection, table: sa.Table) -> sa.Executable:
    """An insert that leaves a row that is there already as it is. Execute it as `insert_or_update`."""
    if connection.dialect.name == "sqlite":
        return _sqlite_upsert(table, (), ())
    # INSERT IGNORE would also turn values that do not fit into warnings.
    return _mysql_upsert(table, ())


async def save_rows(
    connection: AsyncConnection, table: sa.Table, key: tuple[str, ...], update: tuple[str, ...], rows: Sequence[Any]
) -> None:
    """Write rows, dataclasses with a field for every column of the table, over those whose `key` is there already."""
    if rows:
        statement = insert_or_update(connection, table, key, update)
        await connection.execute(statement, [dataclasses.asdict(row) for row in rows])


@functools.cache
def _sqlite_upsert(table: sa.Table, key: tuple[str, ...], update: tuple[str, ...]) -> sa.Executable:
    insert = sqlite.insert(table)
    if not update:
        return insert.on_conflict_do_nothing()
    return insert.on_conflict_do_update(index_elements=list(key), set_={name: insert.excluded[name] for name in update})


@functools.cache
def _mysql_upsert(table: sa.Table, update: tuple[str, ...]) -> sa.TextClause:
    # The dialect's own form for MySQL 8 (`AS new`) is one that aiomysql sends row by row; VALUES() works on MySQL and
    # MariaDB alike. Only names from our own table definitions come into the text.
    # They are quoted, because some are words of SQL.
    names = [column.name for column in table.columns]
    kept = next(column.name for column in table.primary_key)
    changes = ", ".join(f"`{name}` = VALUES(`{name}`)" for name in update) or f"`{kept}` = `{table.name}`.`{kept}`"
    columns = ", ".join(f"`{name}`" for name in names)
    return sa.text(
        f"INSERT INTO `{table.name}` ({columns}) VALUES ({', '.join(':' + name for name in names)})"  # noqa: S608
        f" ON DUPLICATE KEY UPDATE {changes}"
    )


def any_of(name: str) -> sa.BindParameter[Any]:
    """The parameter of `column.in_(any_of("ids"))`: a list given at execution.

    A statement that is built once costs half as much CPU as one that is built for each execution.
    """
    return sa.bindparam(name, expanding=True)


def pages(values: Sequence[Value], size: int = 1000) -> Iterator[Sequence[Value]]:
    """The values in parts that fit an `IN (…)`: SQLite takes 32,766 parameters in one statement; none for no values."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _brief(error: BaseException) -> str:
    original = getattr(error, "orig", None) or error
    return f"{type(original).__name__}: {original}"[:200]


def _make_engine(settings: DatabaseSettings, idle_timeout: float | None) -> AsyncEngine:
    if settings.engine == "sqlite":
        engine = create_async_engine(
            settings.url,
            pool_size=settings.pool_size,
            max_overflow=0,
            pool_reset_on_return=None,
            connect_args={"timeout": 30},
        )
        sa.event.listen(engine.sync_engine, "connect", _set_up_sqlite)
        sa.event.listen(engine.sync_engine, "begin", _begin_sqlite)
        return engine
    engine = create_async_engine(
        settings.url,
        pool_size=settings.pool_size,
        max_overflow=0,
        pool_recycle=1800,
        pool_timeout=10,
        # Every transaction here is ended by its block; a rollback for good measure would be one more round trip each.
        pool_reset_on_return=None,
        isolation_level="READ COMMITTED",
        connect_args={"charset": "utf8mb4", "connect_timeout": 5},
    )
    sa.event.listen(engine.sync_engine, "connect", _set_up_mysql)
    sa.event.listen(engine.sync_engine, "handle_error", _name_closed_transport)
    if idle_timeout is not None:
        _end_when_idle(engine, idle_timeout)
    return engine


def _name_closed_transport(context: sa.ExceptionContext) -> None:
    """uvloop raises a `RuntimeError`, which no driver knows, where the server has closed the connection meanwhile."""
    error = context.original_exception
    if isinstance(error, RuntimeError) and "handler is closed" in str(error):
        context.is_disconnect = True
        raise ConnectionResetError(str(error)) from error


def _end_when_idle(engine: AsyncEngine, seconds: float) -> None:
    """Have the server end idle connections, and do not use one that it may be ending now."""

    def connected(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET SESSION wait_timeout = {max(1, math.ceil(seconds))}")
        cursor.close()

    def checked_in(connection: Any, record: Any) -> None:
        record.info["idle_since"] = time.monotonic()

    def checked_out(connection: Any, record: Any, proxy: Any) -> None:
        idle_since = record.info.get("idle_since")
        if idle_since is not None and time.monotonic() - idle_since > seconds / 2:
            # The pool makes a new connection in its place.
            raise sa.exc.DisconnectionError("idle for too long")

    sa.event.listen(engine.sync_engine, "connect", connected)
    sa.event.listen(engine.sync_engine, "checkin", checked_in)
    sa.event.listen(engine.sync_engine, "checkout", checked_out)


def _set_up_mysql(connection: Any, record: Any) -> None:
    # The driver escapes bytes character by character: 40 µs for 700 of them, against 1.3 µs in hexadecimal.
    driver = connection.driver_connection
    escape = driver.escape
    driver.escape = lambda value: f"x'{value.hex()}'" if isinstance(value, bytes) else escape(value)


def _set_up_sqlite(connection: Any, record: Any) -> None:
    sqlite_driver.install(connection.driver_connection)
    # The driver must not begin transactions by itself: `_begin_sqlite` does.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    read_only = connection.get_execution_options().get("tidings_read_only", False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")
