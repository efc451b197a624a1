"""Version of a database server and duration of a write on it, for diagnosis only; processes do not use this module."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from tidings.installation.settings import DatabaseSettings
from tidings.storage import engine
from tidings.storage.database import Database


@dataclasses.dataclass(frozen=True, slots=True)
class ServerVersion:
    """Version of a database server."""

    version: str
    # TLS cipher of the connection; empty for plaintext.
    cipher: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Writes:
    """Result of a write measurement: concurrent clients, each of which commits one insert after another."""

    clients: int
    # Inserts of all clients together.
    count: int
    # Duration of the measurement.
    seconds: float

    @property
    def milliseconds(self) -> float:
        """Return the mean time that a client waited for one write, milliseconds."""
        return self.seconds * 1000 * self.clients / self.count


async def server(database: Database, *, seconds: float) -> ServerVersion:
    """Return the version of the server. Raises the database's errors, and `DatabaseTimeout` after `seconds` seconds."""
    async with database.reading(seconds=seconds) as connection:
        if connection.dialect.name == "sqlite":
            version = (await connection.exec_driver_sql("SELECT sqlite_version()")).scalar_one()
            return ServerVersion(f"SQLite {version}")
        version = (await connection.exec_driver_sql("SELECT VERSION()")).scalar_one()
        cipher = (await connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Ssl_cipher'")).first()
        return ServerVersion(str(version), str(cipher._mapping["Value"]) if cipher is not None else "")


async def server_time(database: Database) -> float | None:
    """Return the server's clock, Unix seconds; None for SQLite, which has no clock."""
    if database.settings.engine == "sqlite":
        return None
    async with database.reading() as connection:
        return float((await connection.exec_driver_sql("SELECT UNIX_TIMESTAMP(NOW(6))")).scalar_one())


class TableRefused(Exception):
    """The database user may not create tables, so writes cannot be measured."""


# Error codes for `CREATE TABLE` without the privilege: on the table, on the schema.
_MAY_NOT = (1142, 1044)


async def measure_writes(settings: DatabaseSettings, *, clients: int, writes: int) -> Writes:
    """Measure inserts into a temporary table that is dropped afterwards.

    On SQLite the table is in a separate file next to the database, so its writers are not delayed. Raises
    `TableRefused`.
    """
    each = max(1, writes // clients)
    async with _scratch(settings, clients) as (pool, table):
        insert = sa.insert(table)

        async def client() -> None:
            async with pool.connect() as connection:
                for number in range(each):
                    async with connection.begin():
                        await connection.execute(insert, _row(number))

        started = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        return Writes(clients, each * clients, time.perf_counter() - started)


def _row(number: int) -> dict[str, object]:
    integers = {f"number{n}": (number * 7919 + n) % 2**31 for n in range(5)}
    return {**integers, "text": secrets.token_hex(64), "key0": secrets.token_hex(16), "key1": secrets.token_hex(16)}


@contextlib.asynccontextmanager
async def _scratch(settings: DatabaseSettings, clients: int) -> AsyncIterator[tuple[AsyncEngine, sa.Table]]:
    """Create a table like that of `mysqlslap`: five integers, a text, two secondary indexes."""
    name = f"tidings_doctor_{secrets.token_hex(4)}"
    table = sa.Table(
        name,
        sa.MetaData(),
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        *(sa.Column(f"number{n}", sa.Integer) for n in range(5)),
        sa.Column("text", sa.String(128)),
        *(sa.Column(f"key{n}", sa.String(36), index=True) for n in range(2)),
        mysql_engine="InnoDB",
    )
    chosen = dataclasses.replace(settings, pool_size=clients)
    path: Path | None = None
    if settings.engine == "sqlite":
        path = Path(str(sa.make_url(settings.url).database)).with_name(f".{name}.db")
        chosen = dataclasses.replace(chosen, url=f"sqlite+aiosqlite:///{path}")
    pool = engine.make(chosen, context=engine.make_context(chosen))
    try:
        try:
            async with pool.begin() as connection:
                await connection.run_sync(table.create)
        except sa.exc.DBAPIError as error:
            if error.orig is not None and error.orig.args[:1] and error.orig.args[0] in _MAY_NOT:
                raise TableRefused from error
            raise
        try:
            yield pool, table
        finally:
            async with pool.begin() as connection:
                await connection.run_sync(table.drop)
    finally:
        await pool.dispose()
        for ending in ("", "-wal", "-shm") if path is not None else ():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{path}{ending}")
