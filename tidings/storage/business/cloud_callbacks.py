"""Callbacks of the Cloud API's webhooks: at most one of each app, WABA and number. The content is sealed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_update

table = sa.Table(
    "cloud_callbacks",
    metadata,
    sa.Column("node_id", types.key(20), primary_key=True),
    sa.Column("account", types.key(20), nullable=False),
    sa.Column("content", types.blob(), nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class CloudCallbackRow:
    """Callback of one object."""

    node_id: str  # id of the app, WABA or number
    account: str  # number whose token set it, under which the content is sealed
    content: bytes = dataclasses.field(repr=False)


async def put(connection: AsyncConnection, row: CloudCallbackRow) -> None:
    """Set the callback of an object, in place of an earlier one."""
    statement = insert_or_update(connection, table, ("node_id",), ("account", "content"))
    await connection.execute(statement, [dataclasses.asdict(row)])


async def remove(connection: AsyncConnection, node_id: str) -> None:
    await connection.execute(table.delete().where(table.c.node_id == node_id))


async def list_of(connection: AsyncConnection, node_ids: Collection[str]) -> Sequence[CloudCallbackRow]:
    """List the callbacks of those of the objects that have one."""
    rows = await connection.execute(sa.select(table).where(table.c.node_id.in_(node_ids)))
    return [CloudCallbackRow(row.node_id, row.account, bytes(row.content)) for row in rows]
