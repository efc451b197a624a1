"""Triggers by which a test makes the database refuse certain rows at every attempt."""

from __future__ import annotations

import sqlalchemy as sa

from tidings.storage.database import Database


async def refuse_rows(database: Database, table: str, condition: str) -> None:
    """Refuse inserted rows of a table that meet the condition.

    condition: SQL expression about the row `NEW`
    """
    async with database.transaction() as connection:
        await connection.execute(sa.text(_statement(database.settings.engine, table, condition)))


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
