"""Classification of database errors: the row will never be accepted, or the database cannot be used now.

An error counts as a refusal only if it is known to prove that the row, or our statement for it, is wrong. Every other
error, known or not, is an outage: a full disk, a changed password, a connection limit, a killed query, a hung server.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable
from typing import TypeVar

import pymysql
import sqlalchemy as sa


class DatabaseTimeout(sa.exc.TimeoutError):
    """The database did not respond within the time limit of a transaction. It is unknown whether a commit succeeded."""


class PoolExhausted(sa.exc.TimeoutError):
    """Every connection of the pool was in use for the longest time that a transaction may wait; nothing was sent.

    This process is overloaded. The error gives no information about the database.
    """


Value = TypeVar("Value")


async def within(seconds: float, answer: Awaitable[Value]) -> Value:
    """Await a query whose wait for other transactions counts towards the time limit.

    Raises the query's errors, and `DatabaseTimeout` after `seconds` seconds.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            return await answer
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise DatabaseTimeout(f"no response within {seconds:g} s") from error


# Attribute of an error: its commit may have succeeded.
_COMMITTING = "tidings_committing"

# MySQL and MariaDB. The value is NULL, a duplicate, too long, out of range, of the wrong type or character set,
# violates a constraint or foreign key, or exceeds the size of a row or a packet.
# fmt: off
_VALUE_ERRORS = frozenset((
    1048, 1062, 1118, 1153, 1162, 1216, 1217, 1263, 1264, 1265, 1291, 1292, 1300, 1364, 1365, 1366, 1367, 1406, 1411,
    1441, 1451, 1452, 1525, 1557, 1586, 1690, 3140, 3819, 4025,
))
# MySQL and MariaDB. The statement is invalid on any server: syntax, unknown or ambiguous columns, wrong counts, texts
# that cannot be compared.
_STATEMENT_ERRORS = frozenset((
    1052, 1054, 1055, 1056, 1058, 1063, 1064, 1065, 1066, 1093, 1109, 1110, 1111, 1136, 1149, 1210, 1221, 1222, 1241,
    1242, 1248, 1267, 1270, 1271, 1305, 1318, 1390,
))
# fmt: on
# MySQL, MariaDB, Galera, group replication and TiDB. Another transaction won and this one was rolled back completely,
# even if the error is the result of COMMIT: a changed row, a deadlock or a refused certification.
_CONFLICTS = frozenset((1020, 1213, 3101, 8002, 9007))
# SQLite, primary codes only. `SQLITE_ERROR` is an error of the statement unless it has one of the texts below.
_SQLITE_REFUSALS = frozenset(
    (
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_MISUSE,
        sqlite3.SQLITE_RANGE,
    )
)
# Texts of errors for a file that was removed or is being restored, and for a connection whose transaction was ended by
# a full disk.
_SQLITE_OUTAGES = ("no such table", "transaction", "closed")


def refuses_row(error: BaseException) -> bool:
    """Return whether the error proves that the row, or our statement, will be refused at every attempt."""
    original = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", None)
        if code is None:
            # An error of the driver itself: a value that it cannot bind, or a connection that it cannot use.
            known = isinstance(original, sqlite3.ProgrammingError | sqlite3.InterfaceError | sqlite3.DataError)
        else:
            known = code & 0xFF in _SQLITE_REFUSALS
        return known and not any(text in str(original) for text in _SQLITE_OUTAGES)
    if isinstance(original, pymysql.err.DataError | pymysql.err.IntegrityError):
        return True
    if isinstance(original, pymysql.err.MySQLError):
        code = original.args[0] if original.args else None
        return code in _VALUE_ERRORS or code in _STATEMENT_ERRORS
    return False


def is_outage(error: BaseException) -> bool:
    """Return whether the error does not concern the row, so that the same transaction may succeed later.

    Conflicts and lock timeouts are outages in this sense.
    """
    if isinstance(error, sa.exc.DBAPIError | sqlite3.Error | pymysql.err.MySQLError):
        return not refuses_row(error)
    return isinstance(
        error,
        # Errors of the pool, and of a connection that was given up during a transaction.
        sa.exc.TimeoutError
        | sa.exc.DisconnectionError
        | sa.exc.ResourceClosedError
        | sa.exc.PendingRollbackError
        | ConnectionError
        | asyncio.IncompleteReadError,
    )


def is_conflict(error: BaseException) -> bool:
    """Return whether another transaction won and this one left nothing behind, so that it can simply be repeated."""
    original = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return isinstance(original, pymysql.err.MySQLError) and bool(original.args) and original.args[0] in _CONFLICTS


def note_commit(error: BaseException) -> None:
    """Mark an error: a commit had been requested, in this attempt or an earlier one, so it may have succeeded."""
    setattr(error, _COMMITTING, True)


def may_be_committed(error: BaseException) -> bool:
    """Return whether a commit was interrupted, so that it is unknown whether its rows are on disk."""
    return getattr(error, _COMMITTING, False)


def is_safe_to_retry(error: BaseException) -> bool:
    """Return whether the transaction may succeed later and has certainly not been committed."""
    return is_outage(error) and not may_be_committed(error)


def describe(error: BaseException) -> str | None:
    """Return one line for the user if the error means that the database cannot be used; None for other errors."""
    if isinstance(error, sa.exc.DBAPIError | sa.exc.TimeoutError | pymysql.err.MySQLError):
        return f"the database cannot be used: {brief(error)}"
    return None


def brief(error: BaseException) -> str:
    """Return the type and the text of the driver's error, at most 200 characters."""
    original = getattr(error, "orig", None) or error
    return f"{type(original).__name__}: {original}"[:200]
