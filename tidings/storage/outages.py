"""Meaning of a database error: that a row will never be taken, or that the database cannot be used now.

Only what is known to prove the row, or the statement that we made for it, wrong is taken for that. Everything else,
known or not, is an outage: a full disk, a changed password, a limit on connections, a killed query, a hung server.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable
from typing import TypeVar

import pymysql
import sqlalchemy as sa


class Unanswered(sa.exc.TimeoutError):
    """The database did not answer in the time that a transaction may take; whether a commit succeeded is unknown."""


class NoSlot(sa.exc.TimeoutError):
    """Every connection of the pool was in use for as long as a transaction may wait for one: nothing was asked.

    This process is overloaded. It says nothing of the database.
    """


Value = TypeVar("Value")


async def within(seconds: float, answer: Awaitable[Value]) -> Value:
    """The answer to a question that may have to wait for others before it is asked: all that counts.

    Raises its errors, and `Unanswered` after so long.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            return await answer
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise Unanswered(f"no answer within {seconds:g} s") from error


# The attribute of an error that says so.
_COMMITTING = "tidings_committing"

# Of MySQL and MariaDB. Values: NULL, duplicate, too long or out of range for the column, not of its type or character
# set, not what a constraint or a foreign key wants, over the size of a row or a packet.
# fmt: off
_VALUE_ERRORS = frozenset((
    1048, 1062, 1118, 1153, 1162, 1216, 1217, 1263, 1264, 1265, 1291, 1292, 1300, 1364, 1365, 1366, 1367, 1406, 1411,
    1441, 1451, 1452, 1525, 1557, 1586, 1690, 3140, 3819, 4025,
))
# Of MySQL and MariaDB. Statements that no server would take: syntax, unknown or ambiguous columns, wrong counts,
# texts that cannot be compared.
_STATEMENT_ERRORS = frozenset((
    1052, 1054, 1055, 1056, 1058, 1063, 1064, 1065, 1066, 1093, 1109, 1110, 1111, 1136, 1149, 1210, 1221, 1222, 1241,
    1242, 1248, 1267, 1270, 1271, 1305, 1318, 1390,
))
# fmt: on
# Of MySQL and MariaDB, Galera, group replication and TiDB: another transaction was faster, and nothing of this one is
# left, also where its COMMIT is answered so: a changed row, a deadlock or a refused certification.
_CONFLICTS = frozenset((1020, 1213, 3101, 8002, 9007))
# Of SQLite, without their extensions. `SQLITE_ERROR` is of the statement but for the texts below.
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
# What is said of a file that was taken away or is being restored, and of a connection on which a transaction was ended
# by a full disk.
_SQLITE_OUTAGES = ("no such table", "transaction", "closed")


def refuses_row(error: BaseException) -> bool:
    """Does this prove that the row, or our statement, will be refused however often it is tried?"""
    original = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", None)
        if code is None:
            # Of the driver itself: what it cannot bind, or cannot do any more.
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
    """Is this an error of the database that says nothing of the row, so that the same transaction may succeed later?

    Conflicts and lock time-outs are among them.
    """
    if isinstance(error, sa.exc.DBAPIError | sqlite3.Error | pymysql.err.MySQLError):
        return not refuses_row(error)
    return isinstance(
        error,
        # The pool, and what becomes of a connection that was given up under a transaction.
        sa.exc.TimeoutError
        | sa.exc.DisconnectionError
        | sa.exc.ResourceClosedError
        | sa.exc.PendingRollbackError
        | ConnectionError
        | asyncio.IncompleteReadError,
    )


def is_conflict(error: BaseException) -> bool:
    """Was another transaction faster, so that for certain nothing of this one is left and it may just be run again?"""
    original = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return isinstance(original, pymysql.err.MySQLError) and bool(original.args) and original.args[0] in _CONFLICTS


def note_commit(error: BaseException) -> None:
    """The error came when the commit was asked for already, or is what a later try met after one that did."""
    setattr(error, _COMMITTING, True)


def may_be_committed(error: BaseException) -> bool:
    """Did a commit break off, so that nobody knows whether what it had written is on disk?"""
    return getattr(error, _COMMITTING, False)


def describe(error: BaseException) -> str | None:
    """One line for a person when `error` says that the database cannot be used; `None` for anything else."""
    if isinstance(error, sa.exc.DBAPIError | sa.exc.TimeoutError | pymysql.err.MySQLError):
        return f"the database cannot be used: {brief(error)}"
    return None


def brief(error: BaseException) -> str:
    """The driver's own words."""
    original = getattr(error, "orig", None) or error
    return f"{type(original).__name__}: {original}"[:200]
