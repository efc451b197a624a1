"""What handsets have sent, kept for a while: a peer may ask for it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.database import any_of, pages
from tidings.storage.handset.tables import sent


@dataclasses.dataclass(frozen=True, slots=True)
class SentRow:
    """One message. position: of its envelope in the outbox; content: sealed; sent_at: Unix milliseconds.

    session:  what tells the session that it was encrypted in last from others with this peer, 8 bytes.
    attempts: to send it again; asked_by: the latest envelope that asked for that.
    waits:    for a session other than that one.
    """

    fleet: str
    position: int
    number: str
    peer: str
    id: str
    content: bytes = dataclasses.field(repr=False)
    session: bytes
    sent_at: int
    attempts: int = 0
    asked_by: str = ""
    waits: bool = False


_COLUMNS = tuple(sent.c[field.name] for field in dataclasses.fields(SentRow))
_BY_ID = sa.select(*_COLUMNS).where(sent.c.id.in_(any_of("ids")), sent.c.number == sa.bindparam("of_number"))
_CHANGE = (
    sent.update()
    .where(sent.c.fleet == sa.bindparam("of_fleet"), sent.c.position == sa.bindparam("at"))
    .values(
        session=sa.bindparam("in_session"),
        attempts=sa.bindparam("tries"),
        asked_by=sa.bindparam("asker"),
        waits=sa.bindparam("waiting"),
    )
)


async def add(connection: AsyncConnection, rows: Sequence[SentRow]) -> None:
    """Keep messages that go out."""
    if rows:
        await connection.execute(
            sent.insert(), [{column.name: getattr(row, column.name) for column in _COLUMNS} for row in rows]
        )


async def list_sent(connection: AsyncConnection, number: str, ids: Sequence[str]) -> list[SentRow]:
    """Those of a device's messages with these ids that are kept, in the order in which they were sent."""
    found: list[SentRow] = []
    for page in pages(ids):
        rows = await connection.execute(_BY_ID, {"ids": page, "of_number": number})
        found += [SentRow(*row) for row in rows]
    return sorted(found, key=lambda row: row.position)


async def list_waiting(connection: AsyncConnection, fleet: str) -> list[SentRow]:
    """Those of a fleet that wait for a session. Reads everything of the fleet: for its start."""
    rows = await connection.execute(
        sa.select(*_COLUMNS).where(sent.c.fleet == fleet, sent.c.waits).order_by(sent.c.position)
    )
    return [SentRow(*row) for row in rows]


async def save(connection: AsyncConnection, rows: Sequence[SentRow]) -> None:
    """Note how these were sent again."""
    if rows:
        await connection.execute(
            _CHANGE,
            [
                {
                    "of_fleet": row.fleet,
                    "at": row.position,
                    "in_session": row.session,
                    "tries": row.attempts,
                    "asker": row.asked_by,
                    "waiting": row.waits,
                }
                for row in rows
            ],
        )


async def delete_old(connection: AsyncConnection, fleet: str, *, before: int, position: int) -> None:
    """Forget what a fleet sent before a time (Unix milliseconds), and what is at or below a position."""
    await connection.execute(
        sent.delete().where(sent.c.fleet == fleet, sa.or_(sent.c.position <= position, sent.c.sent_at < before))
    )


async def delete_below(connection: AsyncConnection, fleet: str, position: int) -> None:
    """Forget what is at or below a position of a fleet."""
    await connection.execute(sent.delete().where(sent.c.fleet == fleet, sent.c.position <= position))
