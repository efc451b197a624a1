"""IP addresses from which users have logged in."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import changes
from tidings.storage.business.tables import metadata
from tidings.storage.database import save_rows


@dataclasses.dataclass(frozen=True, slots=True)
class LoginOrigin:
    """Address from which a user has logged in."""

    username: Annotated[str, types.text(64)]
    # IPv4 address or /64 prefix of IPv6.
    origin: Annotated[str, types.key(64)]
    # Unix milliseconds of a login, accurate to one day.
    seen_at: types.UnixMilliseconds


table = metadata.table_of(
    LoginOrigin, "login_origins", sa.Index("login_origins_by_time", "seen_at"), key=("username", "origin")
)


async def save(connection: AsyncConnection, origin: LoginOrigin) -> None:
    """Save an origin, or its later time."""
    await save_rows(connection, table, [origin])
    await changes.note(connection, changes.LOGINS)


async def list_since(connection: AsyncConnection, since: int, *, limit: int) -> Sequence[LoginOrigin]:
    """List the `limit` latest origins seen since `since` (Unix milliseconds, inclusive), latest first."""
    rows = await connection.execute(
        sa.select(table).where(table.c.seen_at >= since).order_by(table.c.seen_at.desc()).limit(limit)
    )
    return [LoginOrigin(*row) for row in rows]


async def delete_of(connection: AsyncConnection, username: str) -> None:
    """Delete the origins of a user."""
    await connection.execute(table.delete().where(table.c.username == username))


async def delete_old(connection: AsyncConnection, before: int, *, keep: int) -> int:
    """Delete origins seen before `before`, and all but the `keep` latest. Returns the number deleted."""
    oldest_kept = await connection.execute(
        sa.select(table.c.seen_at).order_by(table.c.seen_at.desc()).offset(keep - 1).limit(1)
    )
    deleted = await connection.execute(table.delete().where(table.c.seen_at < max(before, oldest_kept.scalar() or 0)))
    return deleted.rowcount
