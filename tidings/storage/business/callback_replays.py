"""The audit of replays: which callback was brought back, when, and by whom."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import callback_audits, callbacks
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

MAX_BY = 255  # characters

table = sa.Table(
    "callback_replays",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", types.milliseconds(), primary_key=True),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("replayed_by", types.text(MAX_BY), nullable=False),
    # The callback's event id, where it had one of its own; null for none.
    sa.Column("event", types.key(64), nullable=True),
    sa.Index("callback_replays_by_time", "at"),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """seq: of the callback; at: Unix milliseconds; by: what the command that asked said of its user.

    event: the callback's own event id; `None` where it has none. Read from the callback when the replay is added.
    """

    seq: int
    at: int
    shard: int
    by: str
    event: str | None = None

    @property
    def event_id(self) -> str:
        """Of the callback."""
        return callbacks.event_id(self.seq, self.event or "")


async def add(connection: AsyncConnection, replays: Sequence[Replay]) -> None:
    """Keep them, in the transaction that makes the callbacks pending again."""
    if replays:
        events = await callbacks.list_events(connection, [replay.seq for replay in replays])
        rows = [
            {"seq": r.seq, "at": r.at, "shard": r.shard, "replayed_by": r.by[:MAX_BY], "event": events.get(r.seq)}
            for r in replays
        ]
        await connection.execute(insert_or_ignore(connection, table), rows)


async def list_after(connection: AsyncConnection, after: tuple[int, int], limit: int = 500) -> Sequence[Replay]:
    """A page of them, oldest first, behind the one of this time and seq."""
    return [Replay(*row) for row in await callback_audits.list_after(connection, table, "seq", after, limit)]


async def delete_before(connection: AsyncConnection, before: int, limit: int) -> int:
    """Forget those that are of before `before` (Unix milliseconds), at most `limit`; how many."""
    return await callback_audits.delete_before(connection, table, "seq", before, limit)
