"""Providers of media by link, with their credentials, sealed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import save_rows

table = sa.Table(
    "media_providers",
    metadata,
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("name", types.text(128), primary_key=True),
    sa.Column("kind", types.key(16), nullable=False),
    sa.Column("config", types.blob(), nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class MediaProvider:
    """Provider of media by link. kind: `www`; config: the JSON of the API's `config`, sealed."""

    account: str
    name: str
    kind: str
    config: bytes


async def list_providers(connection: AsyncConnection, account: str) -> Sequence[MediaProvider]:
    """Every provider of an account, by name."""
    rows = await connection.execute(sa.select(table).where(table.c.account == account).order_by(table.c.name))
    return [_provider(row) for row in rows]


async def find_provider(connection: AsyncConnection, account: str, name: str) -> MediaProvider | None:
    """The provider of exactly this name."""
    query = sa.select(table).where(table.c.account == account, table.c.name == name)
    row = (await connection.execute(query)).first()
    # MySQL compares text without its trailing spaces.
    return _provider(row) if row is not None and row.name == name else None


async def save_providers(connection: AsyncConnection, providers: Sequence[MediaProvider]) -> None:
    """Keep providers; one of the same name is replaced."""
    await save_rows(connection, table, ("account", "name"), ("kind", "config"), providers)


async def delete_provider(connection: AsyncConnection, account: str, name: str) -> bool:
    """Forget one provider; true when there was one."""
    deleted = await connection.execute(table.delete().where(table.c.account == account, table.c.name == name))
    return deleted.rowcount > 0


async def delete_providers(connection: AsyncConnection, account: str) -> None:
    """Forget every provider of an account."""
    await connection.execute(table.delete().where(table.c.account == account))


def _provider(row: sa.Row[*tuple[object, ...]]) -> MediaProvider:
    return MediaProvider(row.account, row.name, row.kind, bytes(row.config))
