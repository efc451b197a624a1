"""Progress of a migration on MySQL and MariaDB, which commit each change of a table separately.

A migration that is killed resumes where it stopped. All its statements pass through `MigrationSteps`, so that
migrations need no code for this. A migration has to meet two conditions: it executes the same statements at every run,
and what it reads exists until it no longer needs it (fill the new table, then drop the old one).
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
# Locks no table, changes nothing and has no result. Executed instead of a statement that an earlier run has executed.
_NOTHING = "DO 0"
# Default time to wait for another process that migrates the same tables, seconds.
LOCK_SECONDS = 600.0
# Error of a server whose `pxc_strict_mode` prohibits named locks.
_PROHIBITED = 1105


class LockTimeout(Exception):
    """Another process has been migrating the same tables for too long. It holds the lock until its connection ends."""


class ChangedMigration(Exception):
    """A migration was started by a release whose migration differs: finish it with that release, then upgrade."""


class MigrationSteps:
    """Statements of the running migration, numbered by the table changes among them.

    Before table change `n`, the number `n` is written to a progress table, in the same transaction as the rows written
    since change `n - 1`. The change itself then commits both. A later run therefore knows that everything before `n` is
    done and that only `n` is uncertain. It executes `n`, and takes an "already exists" or "does not exist" error as
    proof that `n` was done.
    """

    def __init__(self, connection: sa.Connection, version_table: str) -> None:
        self._connection = connection
        self._version_table = version_table
        self._name = f"{version_table}_progress"
        self._revision = ""
        self._step = 0
        self._last = ""
        # Digest of the table changes up to the current one.
        self._digest = b""
        # Number of the last change that an earlier run of this migration recorded; 0 for none.
        self._reached = 0
        self._in_doubt = False
        self._reached_digest = ""
        # True while a statement of this class itself is executed.
        self._asking = False

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Record all statements executed in this block as steps of the migration named by `begin`."""
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
                # A table that this step did not make is in the way. The step must not count as done at the next run.
                self._mark(in_doubt=False)
                self._execute("COMMIT")
            raise
        finally:
            sa.event.remove(self._connection, "before_cursor_execute", self._before)
            sa.event.remove(sa.Table, "before_create", _order_indexes)

    def begin(self, revision: str) -> None:
        """Start recording the migration that follows `revision`; an empty string stands for the first migration."""
        self._revision, self._step, self._last, self._digest = revision, 0, "", b""
        self._reached, self._in_doubt, self._reached_digest = 0, False, ""
        row = self._execute(
            f"SELECT step, in_doubt, digest FROM {self._name} WHERE revision = %s",  # noqa: S608
            (revision,),
        ).first()
        if row is not None:
            self._reached, self._in_doubt, self._reached_digest = row.step, bool(row.in_doubt), row.digest
            log.warning("schema.resuming", extra={"table": self._version_table, "after": revision, "step": row.step})

    def delete(self) -> None:
        """Drop the progress table after all migrations. The DROP also commits the migrations."""
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
def alone(connection: sa.Connection, family: str, *, timeout: float = LOCK_SECONDS) -> Iterator[None]:
    """Keep other processes from migrating this family of tables. On SQLite the transaction's own lock does so.

    The server keeps the lock until the last statement of a killed process has ended, so that the next process sees its
    outcome. Raises `LockTimeout` after `timeout` seconds.
    """
    if connection.dialect.name == "sqlite":
        yield
        return
    # Lock names are global to the server, not per schema, and MySQL accepts at most 64 characters.
    name = "tidings:" + hashlib.sha256(f"{connection.engine.url.database}/{family}".encode()).hexdigest()[:40]
    deadline = time.monotonic() + timeout
    while not _get_lock(connection, name):
        if time.monotonic() > deadline:
            raise LockTimeout(f"another process has been migrating the {family} tables for {timeout:.0f} s")
    try:
        yield
    finally:
        # The server releases the lock of a lost connection.
        with contextlib.suppress(sa.exc.SQLAlchemyError):
            connection.exec_driver_sql("SELECT RELEASE_LOCK(%s)", (name,))


def _get_lock(connection: sa.Connection, name: str) -> bool:
    """Return whether the lock was obtained within one second.

    Always true on a cluster that has no such locks (Percona XtraDB Cluster). Two migrations that run at once on such a
    cluster collide in the progress table, and one of them ends with an error.
    """
    try:
        return bool(connection.exec_driver_sql("SELECT GET_LOCK(%s, 1)", (name,)).scalar() == 1)
    except sa.exc.DBAPIError as error:
        if _code(error.orig) != _PROHIBITED:
            raise
        log.warning("schema.not_locked", extra={"error": str(error.orig)})
        return True


def _order_indexes(table: sa.Table, connection: sa.Connection, **_: Any) -> None:
    """Sort the indexes of a table, which SQLAlchemy keeps in a set, so that every run creates them in one order."""
    table.indexes = sa.util.OrderedSet(sorted(table.indexes, key=lambda index: str(index.name)))


def _code(error: BaseException | None) -> int:
    return error.args[0] if error is not None and error.args and isinstance(error.args[0], int) else 0


def _is_done(statement: str, code: int) -> bool:
    """Return whether the server's refusal of a table change shows that the change was made before.

    MariaDB 10.6 and MySQL 8 make each table change atomically: it was done as a whole or not at all.
    """
    words = statement.upper().split()
    match words[0] if words else "":
        case "CREATE":  # the table, the index, the trigger exists
            return code in {1050, 1061, 1359}
        case "DROP":  # no such table, no such index
            return code in {1051, 1091, 1146}
        case "RENAME":  # the new table exists, the old one does not
            return code in {1050, 1146}
        case "ALTER" if "RENAME" in words or "CHANGE" in words:  # as for RENAME, or no such column or index
            return code in {1050, 1054, 1146, 1176}
        case "ALTER":  # the column, index, primary key or constraint exists, or the one to be dropped does not
            return code in {1060, 1061, 1068, 1091, 1826}
    return False
