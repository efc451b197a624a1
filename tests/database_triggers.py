"""Triggers by which a test makes the database refuse certain rows at every attempt."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import sqlalchemy as sa

from tidings.storage.database import Database


@contextlib.asynccontextmanager
async def refused_rows(database: Database, table: str, condition: str) -> AsyncIterator[None]:
    """Refuse inserted rows of a table that meet the condition, until the block ends.

    condition: SQL expression about the row `NEW`
    """
    await _run(database, _statement(database.settings.engine, table, condition))
    try:
        yield
    finally:
        await _run(database, f"DROP TRIGGER refuse_{table}")


async def _run(database: Database, statement: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(sa.text(statement))


def _statement(engine: str, table: str, condition: str) -> str:
    if engine == "sqlite":
        return (
            f"CREATE TRIGGER refuse_{table} BEFORE INSERT ON {table} WHEN {condition} "
            "BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
        )
    return (
        f"CREATE TRIGGER refuse_{table} BEFORE INSERT ON {table} FOR EACH ROW IF {condition} "
        "THEN SIGNAL SQLSTATE '22001' SET MYSQL_ERRNO = 1406, MESSAGE_TEXT = 'refused by the test'; END IF"
    )
