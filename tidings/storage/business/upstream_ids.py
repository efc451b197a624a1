"""Ids of the real Cloud API (`wamid`) beside our own ids of the same messages, in both directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows, any_of, execute_paged, select_paged

LIFETIME_MS = 31 * 24 * 3600 * 1000
MAX_WAMID = 255  # characters


@dataclasses.dataclass(frozen=True, slots=True)
class UpstreamId:
    """Ids of one message."""

    account: Annotated[str, types.key(20)]
    id: Annotated[str, types.key(64)]  # our own
    wamid: Annotated[str, types.key(255)]
    created_at: types.UnixMilliseconds


table = metadata.table_of(
    UpstreamId,
    "upstream_ids",
    sa.Index("upstream_ids_by_wamid", "account", "wamid"),
    sa.Index("upstream_ids_by_age", "created_at"),
    key=("account", "id"),
)

_OF = sa.select(table).where(table.c.account == sa.bindparam("account"))
_BY_ID = _OF.where(table.c.id.in_(any_of("ids")))
_BY_WAMID = _OF.where(table.c.wamid.in_(any_of("wamids")))


async def add(connection: AsyncConnection, rows: Sequence[UpstreamId]) -> None:
    """Add the ids of messages. Existing rows stay unchanged."""
    await add_rows(connection, table, rows)


async def list_by_id(connection: AsyncConnection, account: str, ids: Sequence[str]) -> Sequence[UpstreamId]:
    """List the rows of those of our own ids that have one."""
    return [UpstreamId(*row) for row in await select_paged(connection, _BY_ID, "ids", ids, account=account)]


async def list_by_wamid(connection: AsyncConnection, account: str, wamids: Sequence[str]) -> Sequence[UpstreamId]:
    """List the rows of those of the Cloud API's ids that have one."""
    return [UpstreamId(*row) for row in await select_paged(connection, _BY_WAMID, "wamids", wamids, account=account)]


async def delete_before(connection: AsyncConnection, before: int, limit: int) -> int:
    """Delete at most `limit` rows created before a time (Unix milliseconds). Returns their number."""
    query = sa.select(table.c.account, table.c.id).where(table.c.created_at < before).limit(limit)
    found = list(await connection.execute(query))
    by_account: dict[str, list[str]] = {}
    for account, own in found:
        by_account.setdefault(account, []).append(own)
    delete = table.delete().where(table.c.account == sa.bindparam("of_account"), table.c.id.in_(any_of("ids")))
    for account, ids in by_account.items():
        await execute_paged(connection, delete, "ids", ids, of_account=account)
    return len(found)
