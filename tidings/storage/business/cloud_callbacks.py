"""Callbacks of the Cloud API's webhooks: at most one of each app, WABA and number. The content is sealed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import save_rows


@dataclasses.dataclass(frozen=True, slots=True)
class CloudCallbackRow:
    """Callback of one object."""

    # Id of the app, WABA or number.
    node_id: Annotated[str, types.key(20)]
    # Number whose token set it, under which the content is sealed.
    account: Annotated[str, types.key(20)]
    content: Annotated[bytes, types.blob()] = dataclasses.field(repr=False)


table = metadata.table_of(CloudCallbackRow, "cloud_callbacks", key=("node_id",))


async def put(connection: AsyncConnection, row: CloudCallbackRow) -> None:
    """Set the callback of an object, in place of an earlier one."""
    await save_rows(connection, table, [row])


async def remove(connection: AsyncConnection, node_id: str) -> None:
    await connection.execute(table.delete().where(table.c.node_id == node_id))


async def list_of(connection: AsyncConnection, node_ids: Collection[str]) -> Sequence[CloudCallbackRow]:
    """List the callbacks of those of the objects that have one."""
    rows = await connection.execute(sa.select(table).where(table.c.node_id.in_(node_ids)))
    return [CloudCallbackRow(row.node_id, row.account, bytes(row.content)) for row in rows]
