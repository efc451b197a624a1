"""The pool of connections to one database, set up for its engine: SQLite, or MySQL and MariaDB."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import random
import sqlite3
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiomysql
import pymysql
import sqlalchemy as sa
from pymysql.constants import CLIENT, COMMAND, CR
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tidings.runtime import private_files, tls
from tidings.runtime.settings import DatabaseSettings
from tidings.storage import sqlite_driver
from tidings.storage.pipeline import Pipeline, PipelinedEngine

log = logging.getLogger(__name__)

# Seconds until a server has greeted and let us in.
CONNECT_SECONDS = 5.0
# Seconds that a connection to a SQLite file waits for locks of other connections.
BUSY_SECONDS = 30.0
# Seconds between two attempts to switch a SQLite file to its write-ahead log, give or take a half.
_SWITCH_DELAY = 0.01
# What our connections want of a server whatever its own settings are: managed ones cut what is too long for its column,
# and some take no backslash before a quote.
_SQL_MODE = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
# On a Galera cluster, wait before what begins with a read (1), an UPDATE or DELETE (2) until this node has applied
# everything that was committed on any node before: what another process has committed, or we on another node, is seen.
_WSREP_SYNC_WAIT = 3
# Of servers that are not, or no longer, those that take what is written: a node of a cluster that is cut off or not
# ready yet (1047), one that is shutting down (1053), read-only (1290, 1792, 1836), ends its sessions (3169).
_NOT_THE_PRIMARY = frozenset((1047, 1053, 1290, 1792, 1836, 3169))


def make_context(settings: DatabaseSettings) -> tls.FileContext | None:
    """For `make`; `None` for plaintext. Raises `UnusableCertificate`."""
    if settings.tls is None:
        return None
    return tls.client("database", settings.tls, ciphers=f"{tls.CIPHERS}:{tls.CIPHERS_WITHOUT_CURVES}")


def make(
    settings: DatabaseSettings, idle_timeout: float | None = None, context: tls.FileContext | None = None
) -> AsyncEngine:
    """idle_timeout: seconds after which a MySQL server ends a connection that asks nothing. context: how it is checked
    over TLS; `None` for plaintext."""
    if settings.engine == "sqlite":
        engine = create_async_engine(
            settings.url,
            pool_size=settings.pool_size,
            max_overflow=0,
            pool_reset_on_return=None,
            connect_args={"timeout": BUSY_SECONDS},
        )
        sa.event.listen(engine.sync_engine, "do_connect", _make_private)
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
        connect_args={
            "charset": "utf8mb4",
            "async_creator_fn": _connect_mysql,
            **({"ssl": context} if context else {}),
        },
    )
    sa.event.listen(engine.sync_engine, "connect", _set_up_mysql)
    sa.event.listen(engine.sync_engine, "handle_error", _leave_the_server)
    sa.event.listen(engine.sync_engine, "handle_error", _name_closed_connection)
    if idle_timeout is not None:
        _end_when_idle(engine, idle_timeout)
    return PipelinedEngine(engine.sync_engine)


# Errors of the driver itself: nobody answers any more.
_LOST = frozenset((CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST))


class Doubt:
    """Whether connections lead to where somebody answers: those in doubt are replaced when they are next wanted.

    A name may lead to another address by now, while those who were connected to the old one hang until each is tried.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._before = -math.inf
        sa.event.listen(engine.sync_engine, "connect", self._connected)
        sa.event.listen(engine.sync_engine, "checkout", self._checked_out)

    def cast(self) -> None:
        """On all connections that there are now."""
        self._before = time.monotonic()

    def _connected(self, connection: Any, record: Any) -> None:
        record.info["connected_at"] = time.monotonic()

    def _checked_out(self, connection: Any, record: Any, proxy: Any) -> None:
        if record.info["connected_at"] <= self._before:
            # The pool makes a new connection in its place.
            raise sa.exc.DisconnectionError("connected before another one was left without an answer")


def _make_private(dialect: Any, record: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
    """The database's file, made so that only its owner reads it; SQLite gives its log and index the same mode."""
    if arguments[0] in ("", ":memory:"):
        return
    path = Path(arguments[0])
    # What cannot be made or changed is for the first connection to say. A file that is there is never opened here: with
    # the first descriptor that a process closes all its POSIX locks on the file are gone, those of SQLite's connections
    # too, and the next process that leaves takes the log away from under them.
    with contextlib.suppress(OSError):
        flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(os.open(path, flags, private_files.FILE_MODE))
    for part in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        with contextlib.suppress(OSError):
            if private_files.restrict(part):
                log.warning("permissions.mended", extra={"path": str(part)})


class _Connection(aiomysql.Connection):  # type: ignore[misc]
    """The driver's, which does not go on in the clear when it was to use TLS and is offered none, and which sends the
    statements of a pipeline at once. changed: the rows that each of the last pipeline has changed."""

    changed: Sequence[int] = ()

    async def query(self, sql: str | bytes, unbuffered: bool = False) -> int:
        if not isinstance(sql, Pipeline):
            rows: int = await super().query(sql, unbuffered)
            return rows
        for query in sql.queries:
            await self._execute_command(COMMAND.COM_QUERY, query)
        changed: list[int] = []
        refused: pymysql.err.MySQLError | None = None
        for _ in sql.queries:
            self._next_seq_id = 1
            try:
                await self._read_query_result()
                changed.append(self._affected_rows)
            except pymysql.err.MySQLError as error:
                # The other answers come nevertheless, unless the connection is gone.
                refused = refused or error
                if self._writer is None or error.args[0] in _LOST:
                    break
        if refused is not None:
            raise refused
        self.changed = changed
        return sum(changed)

    async def show_warnings(self) -> None:
        """Nothing, without asking. MySQL 8 warns of `VALUES()` in every statement that writes over rows, and the driver
        would ask for the text each time; what matters is an error in our `sql_mode`."""

    async def _request_authentication(self) -> None:
        if self._ssl_context is not None and not self.server_capabilities & CLIENT.SSL:
            raise pymysql.err.OperationalError(
                CR.CR_SSL_CONNECTION_ERROR, f"the database server at {self._host} offers no TLS"
            )
        await super()._request_authentication()


async def _connect_mysql(**arguments: Any) -> aiomysql.Connection:
    """A connection. The driver's own time-out ends before the greeting, which a server that hangs never sends."""
    connection = _Connection(**arguments)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection._connect()
    except pymysql.err.OperationalError as error:
        connection.close()
        if isinstance(error.__cause__, ssl.SSLError):
            why = tls.describe(error.__cause__)
            raise pymysql.err.OperationalError(
                CR.CR_SSL_CONNECTION_ERROR, f"the database server at {arguments.get('host')}: {why}"
            ) from error
        raise
    except (TimeoutError, *_CLOSED) as error:
        connection.close()
        reason = "no greeting in time" if isinstance(error, TimeoutError) else str(error)
        raise pymysql.err.OperationalError(CR.CR_CONN_HOST_ERROR, f"Can't connect to MySQL server: {reason}") from error
    except BaseException:
        connection.close()
        raise
    return connection


# What the driver and the event loops raise where the server has closed the connection meanwhile.
_CLOSED = (RuntimeError, AttributeError, AssertionError)


def _leave_the_server(context: sa.ExceptionContext) -> None:
    """No connection of the pool goes on with a server that is not the primary: the name may lead to another one."""
    error = context.original_exception
    if isinstance(error, pymysql.err.MySQLError) and error.args and error.args[0] in _NOT_THE_PRIMARY:
        context.is_disconnect = True


def _name_closed_connection(context: sa.ExceptionContext) -> None:
    error = context.original_exception
    if isinstance(error, _CLOSED):
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
    driver = connection.driver_connection
    driver.escape = _make_escape(driver.escape)
    cursor = connection.cursor()
    cursor.execute(f"SET SESSION sql_mode = '{_SQL_MODE}'")
    cursor.execute("SHOW VARIABLES LIKE 'wsrep_on'")
    if (found := cursor.fetchone()) is not None and found[1] == "ON":
        cursor.execute(f"SET SESSION wsrep_sync_wait = {_WSREP_SYNC_WAIT}")
    cursor.close()


def _make_escape(escape: Callable[[Any], str]) -> Callable[[Any], str]:
    """The driver's, with short ways for what nearly all values are: there are some sixty to a message.

    The driver looks for a converter for each, and escapes bytes character by character: 40 µs for 700 of them, against
    1.3 µs in hexadecimal.
    """

    def escape_value(value: Any) -> str:
        kind = type(value)
        if kind is int:
            return str(value)
        if kind is bytes:
            return f"x'{value.hex()}'"
        if kind is list or kind is tuple:
            return f"({','.join(map(escape_value, value))})"
        if kind is str and value.isalnum():
            # Letters and digits alone: nothing in it means anything to the server.
            return f"'{value}'"
        return "NULL" if value is None else escape(value)

    return escape_value


def _set_up_sqlite(connection: Any, record: Any) -> None:
    sqlite_driver.install(connection.driver_connection)
    # The driver must not begin transactions by itself: `_begin_sqlite` does.
    connection.isolation_level = None
    connection.run_async(_switch_to_wal)
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


async def _switch_to_wal(driver: Any) -> None:
    """Switch a file to its write-ahead log, which is kept in the file: only the first connection changes anything.

    SQLite does not apply its own busy time-out to an upgrade from a read lock: of two connections that switch a new
    file at the same moment it fails one at once. Raises its error when the file stays locked for `BUSY_SECONDS`.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    # Otherwise the last attempt, where SQLite does wait, would wait for the whole time-out once more.
    await driver.cursor().execute("PRAGMA busy_timeout=0")
    while True:
        try:
            await driver.cursor().execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        await asyncio.sleep(_SWITCH_DELAY * random.uniform(0.5, 1.5))  # noqa: S311
    await driver.cursor().execute(f"PRAGMA busy_timeout={round(BUSY_SECONDS * 1000)}")


def _begin_sqlite(connection: sa.Connection) -> None:
    read_only = connection.get_execution_options().get("tidings_read_only", False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")
