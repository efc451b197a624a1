"""Recipients that the numbers of a WABA reached outside their service window, counted by its messaging limit.

Each has a row with the next position. The limit is reached while the row that is `limit` positions older than a new one
is younger than 24 hours, so no rows are counted. Rows are kept for a week, whose distinct recipients decide whether the
limit rises.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import cloud_limits
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows, any_of, select_paged

DAY_MS = 24 * 3600 * 1000
WEEK_MS = 7 * DAY_MS


@dataclasses.dataclass(frozen=True, slots=True)
class ReachedRecipient:
    """Recipient who was reached."""

    account: Annotated[str, types.key(20)]  # number that owns the WABA
    position: Annotated[int, sa.BigInteger]  # position from 1, without gaps when it is created
    peer: Annotated[str, types.key(20)]
    reached_at: types.UnixMilliseconds


table = metadata.table_of(
    ReachedRecipient,
    "cloud_reached",
    sa.Index("cloud_reached_by_peer", "account", "peer", "reached_at"),
    key=("account", "position"),
)

_OF_PEERS = (
    sa.select(table.c.peer, sa.func.max(table.c.reached_at))
    .where(
        table.c.account == sa.bindparam("account"),
        table.c.peer.in_(any_of("peers")),
        table.c.reached_at > sa.bindparam("since"),
    )
    .group_by(table.c.peer)
)
_AT_POSITIONS = sa.select(table.c.position).where(
    table.c.account == sa.bindparam("account"),
    table.c.position.in_(any_of("positions")),
    table.c.reached_at > sa.bindparam("since"),
)


async def admit(
    connection: AsyncConnection, account: str, wanted: Sequence[tuple[str, int]], *, now: int
) -> Sequence[int]:
    """Count recipients, in order, each at most once in 24 hours.

    Returns the time at which each was counted, Unix milliseconds; 0 for one that would exceed the limit.

    wanted: recipient, and the limit that applies to it
    now: Unix milliseconds
    """
    last = stored = (await cloud_limits.lock(connection, account)).reached
    since, limits = now - DAY_MS, {limit for _, limit in wanted}
    peers = list(dict.fromkeys(peer for peer, _ in wanted))
    rows = await select_paged(connection, _OF_PEERS, "peers", peers, account=account, since=since)
    counted: dict[str, int] = {row[0]: row[1] for row in rows}
    positions = sorted({last + n - limit for n in range(1, len(peers) + 1) for limit in limits})
    found = await select_paged(connection, _AT_POSITIONS, "positions", positions, account=account, since=since)
    recent = {position for (position,) in found}
    new = []
    for peer, limit in wanted:
        if peer in counted:
            continue
        before = last + 1 - limit
        if before in recent or before > stored:
            continue
        last += 1
        counted[peer] = now
        new.append(ReachedRecipient(account, last, peer, now))
    if new:
        await add_rows(connection, table, new)
        limits_table = cloud_limits.table
        await connection.execute(limits_table.update().where(limits_table.c.account == account).values(reached=last))
        await _delete_expired(connection, account, before=now - WEEK_MS, limit=2 * len(new))
    return [counted.get(peer, 0) for peer, _ in wanted]


async def count_distinct(connection: AsyncConnection, account: str, *, since: int, at_most: int) -> int:
    """Count the distinct recipients since a time (Unix milliseconds), at most `at_most` of them."""
    of_account = (table.c.account == account, table.c.reached_at > since)
    peers = sa.select(table.c.peer).where(*of_account).distinct().limit(at_most).subquery()
    return int((await connection.execute(sa.select(sa.func.count()).select_from(peers))).scalar_one())


async def _delete_expired(connection: AsyncConnection, account: str, *, before: int, limit: int) -> None:
    """Delete rows from before a time (Unix milliseconds), at most the `limit` oldest."""
    oldest = sa.select(table.c.position, table.c.reached_at).where(table.c.account == account)
    rows = await connection.execute(oldest.order_by(table.c.position).limit(limit))
    expired = [row.position for row in rows if row.reached_at <= before]
    if expired:
        until = (table.c.account == account, table.c.position <= max(expired))
        await connection.execute(table.delete().where(*until))
