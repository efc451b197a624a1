"""The tokens of the v1 API that were revoked before they expired: by their id, or all of a user by their mark."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import changes
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

table = sa.Table(
    "revoked_tokens",
    metadata,
    sa.Column("jti", types.key(32), primary_key=True),
    sa.Column("expires_at", types.milliseconds(), nullable=False),
    sa.Column("revoked_at", types.milliseconds(), nullable=False),
    sa.Index("revoked_tokens_by_time", "revoked_at"),
    sa.Index("revoked_tokens_by_expiry", "expires_at"),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Revocation:
    """One revoked token, or all tokens of a user up to then.

    jti: the token's id or the mark of all; times are Unix milliseconds by the clock of the Webapp that revoked it.
    """

    jti: str
    expires_at: int
    revoked_at: int


async def revoke(connection: AsyncConnection, revocation: Revocation) -> None:
    """Revoke one token; doing it again changes nothing."""
    await connection.execute(insert_or_ignore(connection, table), [dataclasses.asdict(revocation)])
    await changes.note(connection, changes.TOKENS)


async def is_revoked(connection: AsyncConnection, jtis: Sequence[str]) -> bool:
    """Was any of these revoked?"""
    return (await connection.execute(sa.select(table.c.jti).where(table.c.jti.in_(jtis)))).first() is not None


async def list_revoked_since(connection: AsyncConnection, since: int) -> Sequence[Revocation]:
    """What was revoked at `since` (Unix milliseconds) or later, oldest first."""
    rows = await connection.execute(
        sa.select(table.c.jti, table.c.expires_at, table.c.revoked_at)
        .where(table.c.revoked_at >= since)
        .order_by(table.c.revoked_at)
    )
    return [Revocation(*row) for row in rows]


async def delete_expired(connection: AsyncConnection, now: int, *, limit: int) -> int:
    """Forget at most `limit` revocations of tokens that have expired by themselves; returns how many."""
    rows = await connection.execute(sa.select(table.c.jti).where(table.c.expires_at < now).limit(limit))
    jtis = [jti for (jti,) in rows]
    if jtis:
        await connection.execute(table.delete().where(table.c.jti.in_(jtis)))
    return len(jtis)
