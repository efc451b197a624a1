"""Statements that an administrator of a MySQL or MariaDB server executes: schemas, users and their rights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa

from tidings.runtime.settings import DatabaseSettings
from tidings.storage import engine

# A schema that every server has and every user may open.
SCHEMA = "information_schema"


class StatementRefused(Exception):
    """The server cannot be reached, or refuses a statement; `str()` has the server's reason."""


async def execute(settings: DatabaseSettings, statements: Sequence[str]) -> None:
    """Execute statements in their order, each at once and for good. Raises `StatementRefused`.

    settings: a database on the server, of which the server and the user count.
    """
    address = f"{settings.url.rpartition('/')[0]}/{SCHEMA}"
    there = dataclasses.replace(settings, url=address, pool_size=1)
    administrator = engine.make(there, context=engine.make_context(there))
    try:
        async with administrator.connect() as connection:
            for statement in statements:
                # The driver takes a percent sign for a parameter.
                await connection.exec_driver_sql(statement.replace("%", "%%"))
    except sa.exc.DBAPIError as error:
        # Without the statement, which may have a password.
        raise StatementRefused(str(error.orig)) from None
    finally:
        await administrator.dispose()
