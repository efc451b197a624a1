"""Connection pool of one database and transactions on it, the same for SQLite and for MySQL or MariaDB."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import math
import random
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import sqlalchemy as sa
from prometheus_client import Counter, Histogram, Summary
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from tidings.aio.probe import Probe
from tidings.installation.settings import DatabaseSettings, describe_url
from tidings.storage import engine, outages, pipeline
from tidings.storage.rows import write, write_instances

Value = TypeVar("Value")

# Type of the connection in `transaction` and `reading`, for signatures outside this package.
Connection: TypeAlias = AsyncConnection
# Subject of a transaction, a metric label: "contacts" are addresses, "keys" includes sessions, "jobs" is the job queue,
# "messages" is everything else.
Subject: TypeAlias = Literal["messages", "contacts", "keys", "jobs"]
# Base class of all errors that the database causes in a query, for handlers outside this package.
DatabaseError = sa.exc.SQLAlchemyError

log = logging.getLogger(__name__)

COMMITS = Counter("tidings_db_commits_total", "Transactions committed", ["family"])
COMMIT_SECONDS = Histogram(
    "tidings_db_transaction_seconds",
    "Duration of a writing transaction, commit included",
    ["family", "about"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1, 5),
)
FLUSH_SECONDS = Histogram(
    "tidings_db_commit_seconds",
    "Duration of the commit of a writing transaction",
    ["family"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1, 5),
)
FAILED_SECONDS = Summary(
    "tidings_db_failed_transaction_seconds",
    "Failed writing transactions and their duration",
    ["family", "about"],
)
OUTAGES = Counter("tidings_db_retries_total", "Transactions retried because the database was unavailable", ["family"])
NO_SLOTS = Counter("tidings_db_no_slot_total", "Transactions refused because all connections were in use", ["family"])
CONFLICTS = Counter("tidings_db_conflicts_total", "Transactions retried after a conflict with another", ["family"])

# Maximum duration of a transaction on a server, seconds, including the wait for a connection. A server that has not
# responded by then is hung, and the connection is closed.
DEADLINE = 10.0
# Of `is_alive`, in seconds: how long a result is valid; how long a write that met an outage makes it false, which is
# longer than the delay between two attempts; how long after such a write the probe is a write.
PROBE_SECONDS = 1.0
FAILURE_SECONDS = 2.0
SUSPICION_SECONDS = 30.0
# Longest response time of a working server, seconds, except for a statement that waits for a lock. After this time
# without a response all connections are suspect.
HANG_SECONDS = 1.5
# Time for which a conflicting transaction is repeated where an outage is not, seconds.
CONFLICT_RETRY_SECONDS = 10.0
# Part of a transaction's time limit that it may wait for a slot, which leaves the rest for the database; and the
# maximum of that wait, seconds, which also applies without a time limit.
SLOT_SHARE, SLOT_SECONDS = 0.5, 30.0
# Delay between two attempts, first and maximum, seconds.
FIRST_DELAY, LAST_DELAY = 0.02, 1.0


@dataclasses.dataclass(eq=False, repr=False)
class Database:
    """Connection pool of one family of tables.

    Writing transactions on SQLite start with `BEGIN IMMEDIATE`, so that concurrent ones queue instead of colliding.
    """

    settings: DatabaseSettings
    family: str
    _: dataclasses.KW_ONLY
    # seconds after which a MySQL server ends an idle connection, even within a transaction, so that the locks of
    # a hung process are released; None for the server's own value
    idle_timeout: float | None = None
    deadline: float = DEADLINE  # maximum duration of a transaction on a server, seconds
    max_retry_seconds: float = math.inf  # upper bound for the `retry_seconds` of `persist`, `commit` and `query`
    probe_seconds: float = PROBE_SECONDS  # time for which a result of `is_alive` is valid, seconds

    def __post_init__(self) -> None:
        self.tls = engine.make_context(self.settings)
        self.engine: AsyncEngine = engine.make(self.settings, self.idle_timeout, self.tls)
        self._suspects = engine.SuspectConnections(self.engine)
        # One slot per connection of the pool, so that a wait for a connection never counts as one for the server.
        self._slots = asyncio.Semaphore(self.settings.pool_size)
        self._deadline = self.deadline if self.settings.engine != "sqlite" else math.inf
        self._probe = Probe(self._answers, self.probe_seconds, f"probe {self.family}")
        self._commits = COMMITS.labels(self.family)
        self._seconds = {about: COMMIT_SECONDS.labels(self.family, about) for about in typing.get_args(Subject)}
        self._flush_seconds = FLUSH_SECONDS.labels(self.family)
        self._failed_seconds = {about: FAILED_SECONDS.labels(self.family, about) for about in typing.get_args(Subject)}
        self._retries = OUTAGES.labels(self.family)
        self._conflicts = CONFLICTS.labels(self.family)
        self._no_slots = NO_SLOTS.labels(self.family)
        # Loop time of the latest write that met an outage; -inf after a later commit.
        self._failed_at = -math.inf
        # Loop time of the latest transaction that ended without an error.
        self._answered_at = -math.inf

    @contextlib.asynccontextmanager
    async def transaction(
        self, *, seconds: float = math.inf, about: Subject = "messages"
    ) -> AsyncIterator[AsyncConnection]:
        """Run the block in a writing transaction: committed at the end of the block, rolled back when it raises.

        Raises `DatabaseTimeout` when it takes longer than `seconds` or the deadline, and `PoolExhausted` when all
        connections are in use for half of that time.

        about: metric label
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        committing = False
        try:
            async with self._writing(seconds=seconds) as connection:
                async with pipeline.gathered(connection):
                    yield connection
                written = loop.time()
                if self.settings.commit_delay:
                    await asyncio.sleep(self.settings.commit_delay)
                committing = True
        except Exception as error:
            is_outage, is_conflict = outages.is_outage(error), outages.is_conflict(error)
            if is_outage and not is_conflict and not isinstance(error, outages.PoolExhausted):
                self._failed_at = loop.time()
                if committing:
                    outages.note_commit(error)
            if is_outage or isinstance(error, DatabaseError):
                self._failed_seconds[about].observe(loop.time() - started)
            raise
        ended = loop.time()
        self._failed_at = -math.inf
        self._commits.inc()
        self._seconds[about].observe(ended - started)
        self._flush_seconds.observe(ended - written)

    @contextlib.asynccontextmanager
    async def reading(self, *, seconds: float = math.inf) -> AsyncIterator[AsyncConnection]:
        """Run the block in a transaction that only reads and blocks no writer. Raises as `transaction` does."""
        async with self._begin(seconds) as connection:
            await connection.execution_options(tidings_read_only=True)
            async with connection.begin(), _given_up(connection):
                yield connection

    async def persist(
        self,
        work: Callable[[AsyncConnection], Awaitable[Value]],
        *,
        retry_seconds: float = 60.0,
        about: Subject = "messages",
    ) -> Value:
        """Run `work` in a writing transaction. Retry it while the database is unreachable or busy.

        A commit whose outcome is unknown is retried too, so `work` must be idempotent: running it after its own
        success must succeed and change nothing. Raises the error of the last attempt.

        retry_seconds: time after which an attempt that fails is the last one
        """
        return await self._retry(functools.partial(self.transaction, about=about), work, retry_seconds)

    async def commit(
        self, work: Callable[[AsyncConnection], Awaitable[Value]], *, retry_seconds: float | None = None
    ) -> Value:
        """Run `work`, which need not be idempotent, in a writing transaction that is committed at most once.

        It is repeated only after a conflict with another transaction and, for `retry_seconds`, after an outage before
        the commit. Raises all other errors.

        retry_seconds: `None` to raise the error of every outage
        """
        if retry_seconds is None:
            return await self._retry(self.transaction, work, CONFLICT_RETRY_SECONDS, retries=outages.is_conflict)
        return await self._retry(self.transaction, work, retry_seconds, retries=outages.is_safe_to_retry)

    async def query(self, work: Callable[[AsyncConnection], Awaitable[Value]], *, retry_seconds: float = 60.0) -> Value:
        """Run `work` in a transaction that only reads, with retries as in `persist`."""
        return await self._retry(self.reading, work, retry_seconds)

    async def is_alive(self, *, timeout: float = 2.0) -> bool:
        """Return whether the database responds within `timeout` seconds and accepts writes.

        The database is probed at most once per `probe_seconds`. A full disk or a read-only server still answers reads.
        Therefore a write that met an outage makes the result false for `FAILURE_SECONDS` or until the next commit, and
        the probes of the next `SUSPICION_SECONDS` are writes that change nothing.
        """
        answers = await self._probe.result(timeout)
        return answers and asyncio.get_running_loop().time() >= self._failed_at + FAILURE_SECONDS

    async def _answers(self, timeout: float) -> bool:
        # A table of this family: its tables may be locked while the server responds to all other queries.
        table = f"schema_{self.family}"
        loop = asyncio.get_running_loop()
        started = loop.time()
        begin, statement = self.reading, f"SELECT version_num FROM {table}"  # noqa: S608
        if loop.time() < self._failed_at + SUSPICION_SECONDS:
            begin, statement = self._writing, f"UPDATE {table} SET version_num = version_num"  # noqa: S608
        try:
            async with begin(seconds=timeout) as connection:
                await connection.execute(sa.text(statement))
        except outages.PoolExhausted:
            # All connections are busy. The database is alive if one of their transactions has succeeded.
            return self._answered_at >= started
        except Exception as error:
            if not outages.is_outage(error):
                log.exception("database.probe_failed", extra={"family": self.family})
            return False
        return True

    @contextlib.asynccontextmanager
    async def _writing(self, *, seconds: float = math.inf) -> AsyncIterator[AsyncConnection]:
        async with self._begin(seconds) as connection, connection.begin(), _given_up(connection):
            yield connection

    @contextlib.asynccontextmanager
    async def _begin(self, seconds: float) -> AsyncIterator[AsyncConnection]:
        """Open a connection for `seconds`, including the wait for it. After that the driver closes the connection."""
        loop = asyncio.get_running_loop()
        seconds = min(seconds, self._deadline)
        deadline = loop.time() + seconds
        await self._take_slot(seconds)
        started = loop.time()
        try:
            async with asyncio.timeout_at(None if deadline == math.inf else deadline) as limit:
                async with self.engine.connect() as connection:
                    if self.engine.dialect.name == "sqlite" and seconds < engine.BUSY_SECONDS:
                        # Whole seconds, so that successive transactions have the same limit.
                        await connection.execution_options(tidings_seconds=math.ceil(seconds))
                    yield connection
            self._answered_at = loop.time()
        except TimeoutError as error:
            if not limit.expired():
                raise
            if loop.time() - started >= HANG_SECONDS:
                self.suspect_connections()
            raise outages.DatabaseTimeout(f"no response within {loop.time() - started:.3g} s") from error
        finally:
            self._slots.release()

    async def _take_slot(self, seconds: float) -> None:
        """Wait for a free connection, at most for `SLOT_SHARE` of `seconds`. Raises `PoolExhausted`."""
        if not self._slots.locked():
            await self._slots.acquire()
            return
        limit = min(seconds * SLOT_SHARE, SLOT_SECONDS)
        try:
            async with asyncio.timeout(limit):
                await self._slots.acquire()
        except TimeoutError:
            self._no_slots.inc()
            size = self.settings.pool_size
            raise outages.PoolExhausted(f"all {size} connections were in use for {limit:.3g} s") from None

    async def _retry(
        self,
        begin: Callable[..., contextlib.AbstractAsyncContextManager[AsyncConnection]],
        work: Callable[[AsyncConnection], Awaitable[Value]],
        retry_seconds: float,
        *,
        retries: Callable[[BaseException], bool] = outages.is_outage,
    ) -> Value:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(retry_seconds, self.max_retry_seconds)
        delay = FIRST_DELAY
        uncertain = False
        while True:
            try:
                async with begin(seconds=max(deadline - loop.time(), delay)) as connection:
                    return await work(connection)
            except Exception as error:
                uncertain = uncertain or outages.may_be_committed(error)
                if not retries(error) or loop.time() + delay > deadline:
                    if uncertain:
                        outages.note_commit(error)
                    raise
                self._note_retry(error)
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))  # noqa: S311
            delay = min(delay * 2, LAST_DELAY)

    def _note_retry(self, error: Exception) -> None:
        fields = {"family": self.family, "error": outages.brief(error)}
        if outages.is_conflict(error):
            self._conflicts.inc()
            log.info("database.conflict", extra=fields)
        else:
            self._retries.inc()
            log.warning("database.retrying", extra=fields)

    def suspect_connections(self) -> None:
        """Suspect all present connections: each is replaced before its next use, which resolves the server's name."""
        if self.settings.engine != "sqlite":
            self._suspects.cast()

    async def close(self) -> None:
        """Close all connections of the pool."""
        await self.engine.dispose()

    def __repr__(self) -> str:
        return f"Database({self.family}, {describe_url(self.settings.url)})"


@contextlib.asynccontextmanager
async def _given_up(connection: AsyncConnection) -> AsyncIterator[None]:
    """Close the connection to a server when the task that uses it is cancelled, because a rollback could hang.

    The server ends the transaction when it finds the connection closed.
    """
    try:
        yield
    except asyncio.CancelledError:
        if connection.dialect.name != "sqlite":
            await connection.invalidate()
        raise


# Value of `Column.info` of columns that no insert names: they start with their default, and later statements set them.
SET_LATER = {"set_later": True}


def insert_or_update(
    connection: AsyncConnection,
    table: sa.Table,
    update: tuple[str, ...] | None = None,
    *,
    fill: tuple[str, ...] = (),
    raised: tuple[str, ...] = (),
) -> sa.Executable:
    """Return an insert that overwrites the columns `update` of a row whose primary key exists.

    Execute it with a list of rows that have a value for every column of the table, except those that are `SET_LATER`.
    It is one statement for all rows.

    update: None for all columns outside the primary key
    fill: those of these columns that are overwritten only where they are NULL
    raised: those that are overwritten only by a higher value
    """
    return (_sqlite_upsert if connection.dialect.name == "sqlite" else _mysql_upsert)(table, update, fill, raised)


def insert_or_ignore(connection: AsyncConnection, table: sa.Table) -> sa.Executable:
    """Return an insert that leaves existing rows unchanged. Execute it as `insert_or_update`."""
    # INSERT IGNORE would also turn values that do not fit into warnings.
    return insert_or_update(connection, table, ())


async def save_rows(
    connection: AsyncConnection, table: sa.Table, rows: Sequence[Any], update: tuple[str, ...] | None = None
) -> None:
    """Insert rows, dataclasses with a field per column. Existing ones are overwritten as by `insert_or_update`."""
    await write_instances(connection, insert_or_update(connection, table, update), rows)


async def add_rows(connection: AsyncConnection, table: sa.Table, rows: Sequence[Any]) -> None:
    """Insert rows, dataclasses with a field per column. Existing rows stay unchanged."""
    await write_instances(connection, insert_or_ignore(connection, table), rows)


def _inserted_columns(table: sa.Table) -> list[sa.Column[Any]]:
    return [column for column in table.columns if column.info != SET_LATER]


def _columns_outside_key(table: sa.Table) -> tuple[str, ...]:
    return tuple(column.key for column in _inserted_columns(table) if not column.primary_key)


@functools.cache
def _sqlite_upsert(
    table: sa.Table, update: tuple[str, ...] | None, fill: tuple[str, ...] = (), raised: tuple[str, ...] = ()
) -> sa.Executable:
    insert = sqlite.insert(table)
    names = _columns_outside_key(table) if update is None else update
    if not names:
        return insert.on_conflict_do_nothing()

    def value(name: str) -> sa.ColumnElement[Any]:
        known, new = table.columns[name], insert.excluded[name]
        if name in fill:
            return sa.func.coalesce(known, new)
        return sa.func.max(known, new) if name in raised else new

    return insert.on_conflict_do_update(
        index_elements=list(table.primary_key), set_={name: value(name) for name in names}
    )


@functools.cache
def _mysql_upsert(
    table: sa.Table, update: tuple[str, ...] | None, fill: tuple[str, ...] = (), raised: tuple[str, ...] = ()
) -> sa.TextClause:
    # aiomysql sends the dialect's own form for MySQL 8 (`AS new`) row by row. `VALUES()` works on MySQL and MariaDB.
    # Only names from our own table definitions enter the text. They are quoted, because some are SQL keywords.
    inserted = _inserted_columns(table)
    keys = [column.key for column in inserted]
    kept = next(column.name for column in table.primary_key)
    updated = _columns_outside_key(table) if update is None else update

    def change(key: str) -> str:
        name = table.columns[key].name
        known, new = f"`{table.name}`.`{name}`", f"VALUES(`{name}`)"
        if key in fill:
            new = f"COALESCE({known}, {new})"
        elif key in raised:
            new = f"GREATEST({known}, {new})"
        return f"`{name}` = {new}"

    changes = ", ".join(map(change, updated)) or f"`{kept}` = `{table.name}`.`{kept}`"
    columns = ", ".join(f"`{column.name}`" for column in inserted)
    statement = sa.text(
        f"INSERT INTO `{table.name}` ({columns}) VALUES ({', '.join(':' + key for key in keys)})"  # noqa: S608
        f" ON DUPLICATE KEY UPDATE {changes}"
    )
    encoded = (column for column in inserted if isinstance(column.type, sa.TypeDecorator))
    return statement.bindparams(*(sa.bindparam(column.key, type_=column.type) for column in encoded))


def any_of(name: str) -> sa.BindParameter[Any]:
    """Return the parameter of `column.in_(any_of("ids"))`, a list given at execution.

    A statement that is built once takes half the CPU time of one that is built for each execution.
    """
    return sa.bindparam(name, expanding=True)


async def delete_listed(connection: Connection, statement: sa.Delete, name: str, values: Sequence[Any]) -> None:
    """Delete the rows with these values, some of which may not exist. The statement has them as `any_of(name)`.

    MariaDB (10.11) reports success with no rows deleted for about 2 % of the deletions that are killed while they are
    being planned; queries and updates are not affected. If rows are missing, the deletion is therefore executed again.
    """
    for page in pages(values):
        parameters = {name: page}

        async def check(connection: Connection, deleted: int, parameters: Mapping[str, Sequence[Any]]) -> None:
            if deleted < len(parameters[name]):
                await connection.execute(statement, parameters)

        await write(connection, statement, parameters, functools.partial(check, parameters=parameters))


async def select_paged(
    connection: AsyncConnection,
    statement: sa.Select[Any],
    name: str,
    values: Iterable[Any],
    size: int = 1000,
    *,
    as_list: Callable[[Sequence[Any]], Sequence[Any]] = list,
    **parameters: Any,
) -> list[Any]:
    """Execute a query once per page of `values`, and return all rows. The statement has the values as `any_of(name)`.

    as_list: makes the parameter from a page; `row_list` for a statement with `any_row_of(name)`
    """
    found: list[Any] = []
    for page in pages(list(values), size):
        found += await connection.execute(statement, {name: as_list(page), **parameters})
    return found


async def execute_paged(
    connection: AsyncConnection,
    statement: sa.Executable,
    name: str,
    values: Iterable[Any],
    size: int = 1000,
    *,
    as_list: Callable[[Sequence[Any]], Sequence[Any]] = list,
    **parameters: Any,
) -> None:
    """Execute a deletion or update as `select_paged` does."""
    for page in pages(list(values), size):
        await connection.execute(statement, {name: as_list(page), **parameters})


def pages(values: Sequence[Value], size: int = 1000) -> Iterator[Sequence[Value]]:
    """Yield the values in pages of at most `size`. SQLite accepts 32,766 parameters in one statement."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
