"""Progress through a migration on MySQL and MariaDB, which commit each change of a table by itself.

A migration that is killed in its middle goes on where it was, whatever it does: every statement passes `Steps`, so that
no migration has to think of it. What must hold for a migration: its statements are the same at every run, and what it
reads is there until it has no more use for it (fill the new table, then drop the old one).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

log = logging.getLogger(__name__)

_DEFINITIONS = {"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"}
_WRITES = {"INSERT", "UPDATE", "DELETE", "REPLACE"}
# Takes no table, changes nothing, and has no result: what is executed in the place of a statement that was executed
# by an earlier run.
_NOTHING = "DO 0"
LOCK_PATIENCE = 600.0
# What a server says that may not lock for others' sake: `pxc_strict_mode`.
_PROHIBITED = 1105


class LockTimeout(Exception):
    """Another process has been migrating the same tables for too long; it holds its lock until its connection ends."""


class ChangedMigration(Exception):
    """A migration was begun by a program whose migration is another one: finish with that program, then upgrade."""


class Steps:
    """The statements of the migration under way, numbered by the changes of tables among them.

    Before change `n` of a migration, `n` goes into a table of its own, in the same transaction as the rows written
    since change `n - 1`; the change then commits both. So a later run knows that everything before `n` is done, and
    only `n` is in doubt: it is tried, and «there already» or «gone already» means that it was done.
    """

    def __init__(self, connection: sa.Connection, version_table: str) -> None:
        self._connection = connection
        self._version_table = version_table
        self._name = f"{version_table}_progress"
        self._revision = ""
        self._step = 0
        self._last = ""
        # Of the changes up to here.
        self._digest = b""
        # How far an earlier run of this migration came.
        self._reached = 0
        self._in_doubt = False
        self._reached_digest = ""
        self._asking = False

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Whatever is executed in this block is a migration's. `begin` says which."""
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {self._name} (revision VARCHAR(32) PRIMARY KEY, step INT NOT NULL, "
            "in_doubt BOOL NOT NULL, digest VARCHAR(64) NOT NULL) ENGINE=InnoDB CHARACTER SET ascii COLLATE ascii_bin"
        )
        sa.event.listen(sa.Table, "before_create", _order_indexes)
        sa.event.listen(self._connection, "before_cursor_execute", self._before, retval=True)
        try:
            yield
        except sa.exc.DBAPIError as error:
            if not error.connection_invalidated and _is_done(self._last, _code(error.orig)):
                # Somebody else's table is in the way: not our step, at the next run either.
                self._mark(in_doubt=False)
                self._execute("COMMIT")
            raise
        finally:
            sa.event.remove(self._connection, "before_cursor_execute", self._before)
            sa.event.remove(sa.Table, "before_create", _order_indexes)

    def begin(self, revision: str) -> None:
        """The migration that follows is the one after `revision` (empty: the first)."""
        self._revision, self._step, self._last, self._digest = revision, 0, "", b""
        self._reached, self._in_doubt, self._reached_digest = 0, False, ""
        row = self._execute(
            f"SELECT step, in_doubt, digest FROM {self._name} WHERE revision = %s",  # noqa: S608
            (revision,),
        ).first()
        if row is not None:
            self._reached, self._in_doubt, self._reached_digest = row.step, bool(row.in_doubt), row.digest
            log.warning("schema.resuming", extra={"table": self._version_table, "after": revision, "step": row.step})

    def forget(self) -> None:
        """Everything is migrated, and committed by this."""
        if sa.inspect(self._connection).has_table(self._name):
            self._execute(f"DROP TABLE {self._name}")

    def _before(
        self, connection: sa.Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> tuple[str, Any]:
        word = statement.lstrip().partition(" ")[0].upper()
        if self._asking or self._version_table in statement.replace("`", " ").split():
            return statement, parameters
        if word in _WRITES and self._step < self._reached:
            return _NOTHING, ()
        if word not in _DEFINITIONS:
            return statement, parameters
        self._step += 1
        self._last = statement
        self._digest = hashlib.sha256(self._digest + b" ".join(statement.encode().split())).digest()
        if self._step < self._reached:
            return _NOTHING, ()
        if self._step > self._reached:
            self._mark(in_doubt=True)
            return statement, parameters
        if self._digest.hex() != self._reached_digest:
            raise ChangedMigration(
                f"the migration of {self._version_table} after {self._revision or 'nothing'} was begun by another "
                f"release and stopped at its step {self._step}: run `tidings migrate` of that release first"
            )
        if not self._in_doubt:
            self._mark(in_doubt=True)
            return statement, parameters
        try:
            cursor.execute(statement, parameters)
        except Exception as error:
            if not _is_done(statement, _code(error)):
                raise
        return _NOTHING, ()

    def _mark(self, *, in_doubt: bool) -> None:
        self._execute(
            f"REPLACE INTO {self._name} (revision, step, in_doubt, digest) VALUES (%s, %s, %s, %s)",  # noqa: S608
            (self._revision, self._step, in_doubt, self._digest.hex()),
        )

    def _execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> sa.CursorResult[Any]:
        self._asking = True
        try:
            return self._connection.exec_driver_sql(statement, parameters)
        finally:
            self._asking = False


@contextlib.contextmanager
def alone(connection: sa.Connection, family: str, *, patience: float = LOCK_PATIENCE) -> Iterator[None]:
    """Nobody else migrates this family of tables meanwhile. SQLite's own lock comes with its transaction.

    The server keeps the lock until what a killed process had it do has ended, so that the next sees the outcome.
    Raises `LockTimeout` after `patience` seconds.
    """
    if connection.dialect.name == "sqlite":
        yield
        return
    # Names of locks are the server's, not the schema's, and MySQL takes 64 characters.
    name = "tidings:" + hashlib.sha256(f"{connection.engine.url.database}/{family}".encode()).hexdigest()[:40]
    deadline = time.monotonic() + patience
    while not _get_lock(connection, name):
        if time.monotonic() > deadline:
            raise LockTimeout(f"another process has been migrating the {family} tables for {patience:.0f} s")
    try:
        yield
    finally:
        # The lock of a connection that is lost is free.
        with contextlib.suppress(sa.exc.SQLAlchemyError):
            connection.exec_driver_sql("SELECT RELEASE_LOCK(%s)", (name,))


def _get_lock(connection: sa.Connection, name: str) -> bool:
    """Is the lock ours within a second? A cluster that has none (Percona's) gives it to everybody.

    Two who migrate at once on a cluster hinder each other by the table of the steps: one of them ends with an error.
    """
    try:
        return bool(connection.exec_driver_sql("SELECT GET_LOCK(%s, 1)", (name,)).scalar() == 1)
    except sa.exc.DBAPIError as error:
        if _code(error.orig) != _PROHIBITED:
            raise
        log.warning("schema.not_locked", extra={"error": str(error.orig)})
        return True


def _order_indexes(table: sa.Table, connection: sa.Connection, **_: Any) -> None:
    """A table keeps its indexes in a set, so that they would come in another order at each run."""
    table.indexes = sa.util.OrderedSet(sorted(table.indexes, key=lambda index: str(index.name)))


def _code(error: BaseException | None) -> int:
    return error.args[0] if error is not None and error.args and isinstance(error.args[0], int) else 0


def _is_done(statement: str, code: int) -> bool:
    """Does the server's refusal of a change of tables say that everything is as the change would have it?

    A change of a table is atomic on MariaDB 10.6 and MySQL 8: it was done as a whole, or not at all.
    """
    words = statement.upper().split()
    match words[0] if words else "":
        case "CREATE":  # the table, the index, the trigger exists
            return code in {1050, 1061, 1359}
        case "DROP":  # no such table, no such index
            return code in {1051, 1091, 1146}
        case "RENAME":  # the new table exists, the old one does not
            return code in {1050, 1146}
        case "ALTER" if "RENAME" in words or "CHANGE" in words:  # as well, and no such column or index
            return code in {1050, 1054, 1146, 1176}
        case "ALTER":  # the column, the index, the primary key, the constraint exists; what is to be dropped does not
            return code in {1060, 1061, 1068, 1091, 1826}
    return False
