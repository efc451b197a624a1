"""Token buckets for login attempts from unfamiliar addresses, shared by all Webapps of an installation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, insert_or_ignore

# Maximum difference between the clocks of two Webapps, milliseconds.
SKEW = 30_000

table = metadata.table(
    "login_buckets",
    sa.Column("bucket", types.key(64), primary_key=True),
    # Unix milliseconds at which the bucket is full. Before that, each missing token accounts for one interval.
    sa.Column("full_at", types.milliseconds(), nullable=False),
    sa.Index("login_buckets_by_time", "full_at"),
)

_now, _interval, _latest, _possible = (
    sa.bindparam(name, type_=sa.BigInteger) for name in ("now", "interval", "latest", "possible")
)
_take = (
    table.update()
    .where(table.c.bucket.in_(any_of("buckets")), (table.c.full_at <= _latest) | (table.c.full_at > _possible))
    .values(full_at=sa.case((table.c.full_at.between(_now, _possible), table.c.full_at), else_=_now) + _interval)
)
_read = sa.select(table.c.bucket, table.c.full_at).where(table.c.bucket.in_(any_of("buckets")))


async def take(
    connection: AsyncConnection, buckets: Sequence[str], now: int, *, interval: int, filling: int
) -> Mapping[str, int]:
    """Consume one token from each bucket. Returns an empty mapping, or if one had none, when each will be full.

    A bucket that has a token loses it even if another bucket has none. A time of fullness that is impossible, given
    `SKEW`, was written by a wrong clock: such a bucket counts as full.

    buckets: names, all different
    now: Unix milliseconds
    interval: time to gain one token, milliseconds
    filling: time to fill an empty bucket, milliseconds
    """
    names = sorted(buckets)
    await connection.execute(insert_or_ignore(connection, table), [{"bucket": name, "full_at": 0} for name in names])
    times = {"now": now, "interval": interval, "latest": now + filling - interval, "possible": now + filling + SKEW}
    taken = await connection.execute(_take, {"buckets": names, **times})
    if taken.rowcount == len(names):
        return {}
    rows = await connection.execute(_read, {"buckets": names})
    return {row.bucket: row.full_at for row in rows}


async def delete_full(connection: AsyncConnection, now: int, *, limit: int) -> int:
    """Delete at most `limit` full buckets, since a missing bucket counts as full. Returns the number deleted."""
    rows = await connection.execute(sa.select(table.c.bucket).where(table.c.full_at < now).limit(limit))
    full = [bucket for (bucket,) in rows]
    if full:
        await connection.execute(table.delete().where(table.c.bucket.in_(full), table.c.full_at < now))
    return len(full)
