"""Users that a business number has blocked."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows, any_of, execute_paged, select_paged


@dataclasses.dataclass(frozen=True, slots=True)
class BlockedUser:
    """Recipient whose messages a business number does not get."""

    account: Annotated[str, types.key(20)]
    wa_id: Annotated[str, types.key(20)]
    blocked_at: types.UnixMilliseconds


table = metadata.table_of(BlockedUser, "blocked_users", key=("account", "wa_id"))

_OF_ACCOUNT = table.c.account == sa.bindparam("account")
_KNOWN = sa.select(table.c.wa_id).where(_OF_ACCOUNT, table.c.wa_id.in_(any_of("users")))
_DELETE = table.delete().where(_OF_ACCOUNT, table.c.wa_id.in_(any_of("users")))


async def add(connection: AsyncConnection, users: Sequence[BlockedUser]) -> None:
    """Block users. Those who are blocked already stay so."""
    await add_rows(connection, table, users)


async def remove(connection: AsyncConnection, account: str, users: Sequence[str]) -> None:
    """Unblock users."""
    await execute_paged(connection, _DELETE, "users", users, account=account)


async def list_known(connection: AsyncConnection, account: str, users: Sequence[str]) -> set[str]:
    """Return those of the users who are blocked."""
    return {row.wa_id for row in await select_paged(connection, _KNOWN, "users", users, account=account)}


async def count(connection: AsyncConnection, account: str) -> int:
    query = sa.select(sa.func.count()).select_from(table).where(table.c.account == account)
    return int((await connection.execute(query)).scalar_one())


async def find_state(connection: AsyncConnection, account: str) -> tuple[int, int, int]:
    """Return a value that differs after each change of the list: number of users, latest and summed `blocked_at`."""
    blocked_at = table.c.blocked_at
    values = sa.func.count(), sa.func.coalesce(sa.func.max(blocked_at), 0), sa.func.coalesce(sa.func.sum(blocked_at), 0)
    found = (await connection.execute(sa.select(*values).where(table.c.account == account))).one()
    return int(found[0]), int(found[1]), int(found[2])


async def list_all(connection: AsyncConnection, account: str) -> frozenset[str]:
    rows = await connection.execute(sa.select(table.c.wa_id).where(table.c.account == account))
    return frozenset(rows.scalars())


async def list_after(connection: AsyncConnection, account: str, after: str, *, limit: int) -> Sequence[str]:
    """List the `limit` users that follow `after`, by number; from the first one for an empty text."""
    query = sa.select(table.c.wa_id).where(table.c.account == account, table.c.wa_id > after)
    return list((await connection.execute(query.order_by(table.c.wa_id).limit(limit))).scalars())


async def list_before(connection: AsyncConnection, account: str, before: str, *, limit: int) -> Sequence[str]:
    """List the `limit` users that precede `before`, by number."""
    query = sa.select(table.c.wa_id).where(table.c.account == account, table.c.wa_id < before)
    found = (await connection.execute(query.order_by(table.c.wa_id.desc()).limit(limit))).scalars()
    return list(found)[::-1]
