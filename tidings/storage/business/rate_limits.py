"""Token buckets that all Webapps of the installation share, stored as the time at which each is full."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

table = metadata.table(
    "rate_limits",
    sa.Column("name", types.key(32), primary_key=True),
    # Unix microseconds at which the bucket is full.
    sa.Column("full_at", sa.BigInteger, nullable=False),
)


@dataclasses.dataclass(frozen=True, slots=True)
class TokenRequest:
    """Request for tokens of one bucket."""

    name: str
    tokens: int
    # Tokens gained per second.
    rate: float
    # Capacity, tokens.
    burst: float


def grant(wanted: TokenRequest, full_at: int, now: int) -> tuple[int, int]:
    """Return the tokens that the bucket can give, and when it is full after that. Times are Unix microseconds.

    A `full_at` further in the future than the time to fill the bucket stems from another configuration or clock. The
    bucket then counts as empty.
    """
    interval = 1_000_000 / wanted.rate
    filling = wanted.burst * interval
    left = min(max(full_at - now, 0), filling)
    # A token counts as present if only a rounding error is missing.
    tokens = min(wanted.tokens, int((filling - left) / interval + 1e-6))
    return tokens, now + round(left + tokens * interval)


async def take(
    connection: AsyncConnection, wanted: Sequence[TokenRequest], *, now: int | None = None
) -> Mapping[str, int]:
    """Consume the wanted tokens of each bucket, as far as it has them. An unknown bucket is full.

    now: Unix microseconds; None for the database's clock
    """
    by_name = {each.name: each for each in sorted(wanted, key=lambda each: each.name)}
    found = await _lock(connection, list(by_name))
    if len(found) < len(by_name):
        rows = [{"name": name, "full_at": 0} for name in by_name]
        await connection.execute(insert_or_ignore(connection, table), rows)
        found = await _lock(connection, list(by_name))
    given = {}
    for name, each in by_name.items():
        full_at, read_at = found[name]
        given[name], full_at = grant(each, full_at, read_at if now is None else now)
        if given[name]:
            await connection.execute(table.update().where(table.c.name == name).values(full_at=full_at))
    return given


async def _lock(connection: AsyncConnection, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Lock the buckets. Returns the time at which each is full, and the present time, Unix microseconds."""
    query = sa.select(table.c.name, table.c.full_at, database_clock.now(connection)).where(table.c.name.in_(names))
    rows = await connection.execute(query.order_by(table.c.name).with_for_update())
    return {name: (full_at, now * 1000) for name, full_at, now in rows}
