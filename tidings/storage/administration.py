"""Execution of an administrator's statements on a MySQL or MariaDB server: schemas, users and privileges."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa

from tidings.installation.settings import DatabaseSettings
from tidings.storage import engine

# Schema that exists on every server and that every user may open.
SCHEMA = "information_schema"


class StatementRefused(Exception):
    """The server cannot be reached, or refused a statement; `str()` is the reason."""


async def execute(settings: DatabaseSettings, statements: Sequence[str]) -> None:
    """Execute statements in order. Each takes effect at once and is not rolled back. Raises `StatementRefused`.

    settings: any database on the server; only the server and the user are used.
    """
    address = f"{settings.url.rpartition('/')[0]}/{SCHEMA}"
    there = dataclasses.replace(settings, url=address, pool_size=1)
    administrator = engine.make(there, context=engine.make_context(there))
    try:
        async with administrator.connect() as connection:
            for statement in statements:
                # The driver would interpret a percent sign as a parameter.
                await connection.exec_driver_sql(statement.replace("%", "%%"))
    except sa.exc.DBAPIError as error:
        # Without the statement, which may contain a password.
        raise StatementRefused(str(error.orig)) from None
    finally:
        await administrator.dispose()
