"""Tokens of the v1 API revoked before their expiry: single ones by id, all of a user by a common mark."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import changes
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows


@dataclasses.dataclass(frozen=True, slots=True)
class Revocation:
    """Revocation of one token, or of all tokens that a user has at that time."""

    # Id of the token, or mark of all tokens of a user.
    jti: Annotated[str, types.key(32)]
    # Unix milliseconds, by the clock of the Webapp that revoked the token.
    expires_at: types.UnixMilliseconds
    # Unix milliseconds, by the same clock.
    revoked_at: types.UnixMilliseconds


table = metadata.table_of(
    Revocation,
    "revoked_tokens",
    sa.Index("revoked_tokens_by_time", "revoked_at"),
    sa.Index("revoked_tokens_by_expiry", "expires_at"),
    key=("jti",),
)


async def revoke(connection: AsyncConnection, revocation: Revocation) -> None:
    """Record a revocation. Repeating it changes nothing."""
    await add_rows(connection, table, [revocation])
    await changes.note(connection, changes.TOKENS)


async def is_revoked(connection: AsyncConnection, jtis: Sequence[str]) -> bool:
    """Return whether any of these is revoked."""
    return (await connection.execute(sa.select(table.c.jti).where(table.c.jti.in_(jtis)))).first() is not None


async def list_revoked_since(connection: AsyncConnection, since: int) -> Sequence[Revocation]:
    """List the revocations since `since` (Unix milliseconds, inclusive), oldest first."""
    rows = await connection.execute(sa.select(table).where(table.c.revoked_at >= since).order_by(table.c.revoked_at))
    return [Revocation(*row) for row in rows]


async def delete_expired(connection: AsyncConnection, now: int, *, limit: int) -> int:
    """Delete at most `limit` revocations of tokens that expired before `now`. Returns the number deleted."""
    rows = await connection.execute(sa.select(table.c.jti).where(table.c.expires_at < now).limit(limit))
    jtis = [jti for (jti,) in rows]
    if jtis:
        await connection.execute(table.delete().where(table.c.jti.in_(jtis)))
    return len(jtis)
