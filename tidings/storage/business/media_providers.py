"""Providers of media by link, with their sealed credentials."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import save_rows


@dataclasses.dataclass(frozen=True, slots=True)
class MediaProviderRow:
    """Provider of media by link."""

    account: Annotated[str, types.key(20)]
    name: Annotated[str, types.text(128)]
    # Always "www".
    kind: Annotated[str, types.key(16)]
    # JSON of the API's `config`, sealed.
    config: bytes


table = metadata.table_of(MediaProviderRow, "media_providers", key=("account", "name"))


async def list_providers(connection: AsyncConnection, account: str) -> Sequence[MediaProviderRow]:
    """List the providers of an account, by name."""
    rows = await connection.execute(sa.select(table).where(table.c.account == account).order_by(table.c.name))
    return [MediaProviderRow(*row) for row in rows]


async def find_provider(connection: AsyncConnection, account: str, name: str) -> MediaProviderRow | None:
    """Find the provider whose name is exactly `name`."""
    query = sa.select(table).where(table.c.account == account, table.c.name == name)
    row = (await connection.execute(query)).first()
    # MySQL ignores trailing spaces when it compares text.
    return MediaProviderRow(*row) if row is not None and row.name == name else None


async def save_providers(connection: AsyncConnection, providers: Sequence[MediaProviderRow]) -> None:
    """Save providers. One of the same name is replaced."""
    await save_rows(connection, table, providers)


async def delete_provider(connection: AsyncConnection, account: str, name: str) -> bool:
    """Delete one provider. Returns whether it existed."""
    deleted = await connection.execute(table.delete().where(table.c.account == account, table.c.name == name))
    return deleted.rowcount > 0


async def delete_providers(connection: AsyncConnection, account: str) -> None:
    """Delete all providers of an account."""
    await connection.execute(table.delete().where(table.c.account == account))
