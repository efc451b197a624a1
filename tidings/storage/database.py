"""One connection pool and the transactions on it, the same on SQLite and on MySQL or MariaDB."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import math
import random
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import sqlalchemy as sa
from prometheus_client import Counter, Histogram, Summary
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from tidings.runtime.probe import Probe
from tidings.runtime.settings import DatabaseSettings, describe_url
from tidings.storage import engine, outages, pipeline
from tidings.storage.rows import write, write_rows

Value = TypeVar("Value")

# What `transaction` and `reading` hand out, for the signatures of code outside this package.
Connection: TypeAlias = AsyncConnection
# What a transaction is about, for its counts: messages and all else, addresses, keys and sessions, or the job queue.
Subject: TypeAlias = Literal["messages", "contacts", "keys", "jobs"]
# Everything that a question can raise because of the database, for handlers outside this package.
DatabaseError = sa.exc.SQLAlchemyError

log = logging.getLogger(__name__)

COMMITS = Counter("tidings_db_commits_total", "Transactions committed", ["family"])
COMMIT_SECONDS = Histogram(
    "tidings_db_transaction_seconds",
    "From the begin of a writing transaction to the end of its commit",
    ["family", "about"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1, 5),
)
FLUSH_SECONDS = Histogram(
    "tidings_db_commit_seconds",
    "The commit alone of a writing transaction: what the database takes to have it on its disk",
    ["family"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1, 5),
)
FAILED_SECONDS = Summary(
    "tidings_db_failed_transaction_seconds",
    "Writing transactions that the database did not take, and their time",
    ["family", "about"],
)
OUTAGES = Counter("tidings_db_retries_total", "Transactions tried again because the database was away", ["family"])
NO_SLOTS = Counter("tidings_db_no_slot_total", "Transactions not begun because all connections were in use", ["family"])
CONFLICTS = Counter("tidings_db_conflicts_total", "Transactions tried again because another was faster", ["family"])

# Seconds that one transaction on a server may take, the wait for its connection included; a server that has not
# answered by then hangs, and the connection is given up.
DEADLINE = 10.0
# Seconds that an answer of `is_alive` stands; that a write which met an outage counts against it, which is longer than
# two tries are apart; and in which it is asked by a write after one.
PROBE_SECONDS = 1.0
FAILURE_SECONDS = 2.0
SUSPICION_SECONDS = 30.0
# Seconds in which a server that is there has answered, but for a statement that waits for a lock: after so long without
# an answer no connection is believed to lead anywhere.
HANG_SECONDS = 1.5
# Seconds for which what another transaction was faster than is tried again, where an outage is not.
CONFLICT_PATIENCE = 10.0
# Part of its seconds that a transaction waits for a slot, so that it has the rest for the database; and the seconds
# that one without a limit waits.
SLOT_SHARE, SLOT_SECONDS = 0.5, 30.0
# Seconds between two tries, from the first to the most.
FIRST_DELAY, LAST_DELAY = 0.02, 1.0


class Database:
    """The pool of one family of tables.

    Writing transactions on SQLite begin with `BEGIN IMMEDIATE`, so that two of them queue rather than collide.
    """

    def __init__(
        self,
        settings: DatabaseSettings,
        family: str,
        *,
        idle_timeout: float | None = None,
        deadline: float = DEADLINE,
        patience: float = math.inf,
        probe_seconds: float = PROBE_SECONDS,
    ) -> None:
        """idle_timeout: seconds after which a MySQL server ends a connection of ours that asks nothing, even within a
        transaction, so that a process that hangs does not keep its locks.

        deadline: seconds that a transaction on a server may take; patience: seconds that `persist` and `query` try at
        most, whatever they are asked for; probe_seconds: that an answer of `is_alive` stands.
        """
        self.settings = settings
        self.family = family
        self.tls = engine.make_context(settings)
        self.engine: AsyncEngine = engine.make(settings, idle_timeout, self.tls)
        self._doubt = engine.Doubt(self.engine)
        # One for each connection of the pool, so that a wait for a connection is not taken for one for the server.
        self._slots = asyncio.Semaphore(settings.pool_size)
        self._deadline = deadline if settings.engine != "sqlite" else math.inf
        self._patience = patience
        self._probe = Probe(self._answers, probe_seconds, f"probe {family}")
        self._commits = COMMITS.labels(family)
        self._seconds = {about: COMMIT_SECONDS.labels(family, about) for about in typing.get_args(Subject)}
        self._flush_seconds = FLUSH_SECONDS.labels(family)
        self._failed_seconds = {about: FAILED_SECONDS.labels(family, about) for about in typing.get_args(Subject)}
        self._retries = OUTAGES.labels(family)
        self._conflicts = CONFLICTS.labels(family)
        self._no_slots = NO_SLOTS.labels(family)
        # Loop time of the latest write that met an outage, if none was committed since.
        self._failed_at = -math.inf
        # Loop time of the latest transaction that ended without an error.
        self._answered_at = -math.inf

    @contextlib.asynccontextmanager
    async def transaction(
        self, *, seconds: float = math.inf, about: Subject = "messages"
    ) -> AsyncIterator[AsyncConnection]:
        """A writing transaction: committed when the block ends, rolled back when it raises. about: what it counts as.

        Raises `Unanswered` when it takes longer than `seconds`, or than the deadline, and `NoSlot` when all connections
        are in use for half of that time.
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
            if is_outage and not is_conflict and not isinstance(error, outages.NoSlot):
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
        """A transaction that only reads; it takes no lock that a writer would wait for. Raises as `transaction`."""
        async with self._begin(seconds) as connection:
            await connection.execution_options(tidings_read_only=True)
            async with connection.begin(), _given_up(connection):
                yield connection

    async def persist(
        self,
        work: Callable[[AsyncConnection], Awaitable[Value]],
        *,
        patience: float = 60.0,
        about: Subject = "messages",
    ) -> Value:
        """Run `work` in a writing transaction; while the database is away or busy, try again for `patience` seconds.

        A commit whose outcome is unknown is tried again too, so `work` must be idempotent: running it on top of its
        own earlier success must succeed and change nothing. Raises what the last try raised.
        """
        return await self._patiently(functools.partial(self.transaction, about=about), work, patience)

    async def commit(self, work: Callable[[AsyncConnection], Awaitable[Value]]) -> Value:
        """Run `work`, which need not be idempotent, in a writing transaction that is committed once at most.

        It is tried again where another transaction was faster, and raises what else goes wrong.
        """
        return await self._patiently(self.transaction, work, CONFLICT_PATIENCE, retries=outages.is_conflict)

    async def query(self, work: Callable[[AsyncConnection], Awaitable[Value]], *, patience: float = 60.0) -> Value:
        """Run `work` in a transaction that only reads; tried again as by `persist`."""
        return await self._patiently(self.reading, work, patience)

    async def is_alive(self, *, timeout: float = 2.0) -> bool:
        """Does the database answer within so many seconds, and take what is written?

        Asked at most once a second. A full disk or a server that is read-only still answers, so a write that met an
        outage counts for `FAILURE_SECONDS` or until the next commit, and is followed by writes that only ask.
        """
        answers = await self._probe.answer(timeout)
        return answers and asyncio.get_running_loop().time() >= self._failed_at + FAILURE_SECONDS

    async def _answers(self, timeout: float) -> bool:
        # One of our own tables: those of a family may be locked while the server answers everything else.
        table = f"schema_{self.family}"
        loop = asyncio.get_running_loop()
        started = loop.time()
        begin, question = self.reading, f"SELECT version_num FROM {table}"  # noqa: S608
        if loop.time() < self._failed_at + SUSPICION_SECONDS:
            begin, question = self._writing, f"UPDATE {table} SET version_num = version_num"  # noqa: S608
        try:
            async with begin(seconds=timeout) as connection:
                await connection.execute(sa.text(question))
        except outages.NoSlot:
            # All connections are busy: with a database that answers?
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
        """A connection, for `seconds` with the wait for it. When they are over, the driver closes the connection."""
        loop = asyncio.get_running_loop()
        seconds = min(seconds, self._deadline)
        deadline = loop.time() + seconds
        await self._take_slot(seconds)
        started = loop.time()
        try:
            async with asyncio.timeout_at(None if deadline == math.inf else deadline) as limit:
                async with self.engine.connect() as connection:
                    yield connection
            self._answered_at = loop.time()
        except TimeoutError as error:
            if not limit.expired():
                raise
            if loop.time() - started >= HANG_SECONDS:
                self.doubt_connections()
            raise outages.Unanswered(f"no answer within {loop.time() - started:.3g} s") from error
        finally:
            self._slots.release()

    async def _take_slot(self, seconds: float) -> None:
        """Wait for a free connection, at most for a share of `seconds`. Raises `NoSlot`."""
        if not self._slots.locked():
            await self._slots.acquire()
            return
        patience = min(seconds * SLOT_SHARE, SLOT_SECONDS)
        try:
            async with asyncio.timeout(patience):
                await self._slots.acquire()
        except TimeoutError:
            self._no_slots.inc()
            size = self.settings.pool_size
            raise outages.NoSlot(f"all {size} connections were in use for {patience:.3g} s") from None

    async def _patiently(
        self,
        begin: Callable[..., contextlib.AbstractAsyncContextManager[AsyncConnection]],
        work: Callable[[AsyncConnection], Awaitable[Value]],
        patience: float,
        *,
        retries: Callable[[BaseException], bool] = outages.is_outage,
    ) -> Value:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(patience, self._patience)
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

    def doubt_connections(self) -> None:
        """Have the connections that there are replaced by others, which look the server's name up again."""
        if self.settings.engine != "sqlite":
            self._doubt.cast()

    async def close(self) -> None:
        """Close every pooled connection."""
        await self.engine.dispose()

    def __repr__(self) -> str:
        return f"Database({self.family}, {describe_url(self.settings.url)})"


@contextlib.asynccontextmanager
async def _given_up(connection: AsyncConnection) -> AsyncIterator[None]:
    """Closes the connection to a server when whoever uses it is cancelled: to ask for a rollback could take for ever.

    The server ends the transaction when it finds the connection closed.
    """
    try:
        yield
    except asyncio.CancelledError:
        if connection.dialect.name != "sqlite":
            await connection.invalidate()
        raise


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
        await write_rows(connection, statement, [dataclasses.asdict(row) for row in rows])


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


async def delete_listed(connection: Connection, statement: sa.Delete, name: str, values: Sequence[Any]) -> None:
    """Delete the rows with these values, of which some may be gone; the statement has them as `any_of(name)`.

    MariaDB (10.11) reports success with nothing deleted for about one in fifty deletions that are killed while they are
    planned; neither a query nor an update. So what was not deleted is asked for once more.
    """
    for page in pages(values):
        parameters = {name: page}

        async def check(connection: Connection, deleted: int, parameters: Mapping[str, Sequence[Any]]) -> None:
            if deleted < len(parameters[name]):
                await connection.execute(statement, parameters)

        await write(connection, statement, parameters, functools.partial(check, parameters=parameters))


def pages(values: Sequence[Value], size: int = 1000) -> Iterator[Sequence[Value]]:
    """The values in parts that fit an `IN (…)`: SQLite takes 32,766 parameters in one statement; none for no values."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
