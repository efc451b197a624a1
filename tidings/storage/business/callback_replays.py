"""Audit of replays: the dead letters made pending again, with time and user."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import callback_audits, callbacks
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows

# Maximum length of a user's name, characters.
MAX_BY = 255


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """Replay of one callback."""

    # `seq` of the callback.
    seq: Annotated[int, sa.BigInteger]
    at: types.UnixMilliseconds
    shard: int
    # User, as reported by the command.
    by: Annotated[str, types.text(MAX_BY), "replayed_by"]
    # Own event id of the callback; None if it has none. That of a callback in the queue is read when it is added.
    event: Annotated[str | None, types.key(64)] = None

    @property
    def event_id(self) -> str:
        """Return the event id of the callback."""
        return callbacks.event_id(self.seq, self.event or "")


table = metadata.table_of(
    Replay,
    "callback_replays",
    sa.Index("callback_replays_by_time", "at"),
    sa.Index("callback_replays_by_shard", "shard", "at"),
    key=("seq", "at"),
)


async def add(connection: AsyncConnection, replays: Sequence[Replay]) -> None:
    """Record replays, in the transaction that makes the callbacks pending again."""
    if replays:
        events = await callbacks.list_events(connection, [replay.seq for replay in replays])
        rows = [dataclasses.replace(r, by=r.by[:MAX_BY], event=events.get(r.seq, r.event)) for r in replays]
        await add_rows(connection, table, rows)


async def list_after(connection: AsyncConnection, after: tuple[int, int], limit: int = 500) -> Sequence[Replay]:
    """List a page of replays, oldest first, starting after the one with this time and `seq`."""
    return [Replay(*row) for row in await callback_audits.list_after(connection, table, "seq", after, limit)]


async def delete_before(connection: AsyncConnection, before: int, limit: int) -> int:
    """Delete at most `limit` replays older than `before` (Unix milliseconds). Returns the number deleted."""
    return await callback_audits.delete_before(connection, table, "seq", before, limit)
