"""Messages that handsets have sent, kept for a time because a peer may request them again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, select_paged
from tidings.storage.handset.tables import metadata


@dataclasses.dataclass(frozen=True, slots=True)
class SentRow:
    """Sent message."""

    fleet: Annotated[str, types.key(40)]
    # Position of its envelope in the outbox.
    position: Annotated[int, sa.BigInteger]
    number: Annotated[str, types.key(20)]
    peer: Annotated[str, types.key(20)]
    id: Annotated[str, types.key(64)]
    # Sealed.
    content: bytes = dataclasses.field(repr=False)
    # Tag, 8 bytes, of the session with this peer in which it was last encrypted.
    session: Annotated[bytes, types.fixed_bytes(8)]
    sent_at: types.UnixMilliseconds
    # Number of attempts to send it again.
    attempts: int = 0
    # Id of the latest envelope that requested it again; empty for none.
    asked_by: Annotated[str, types.key(64)] = ""
    # True while it waits for a session other than `session`.
    waits: bool = False


sent = metadata.table_of(SentRow, "handset_sent", sa.Index("handset_sent_by_id", "id"), key=("fleet", "position"))


_BY_ID = sa.select(sent).where(sent.c.id.in_(any_of("ids")), sent.c.number == sa.bindparam("of_number"))
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
    """Add messages that are being sent."""
    if rows:
        await connection.execute(sent.insert(), [dataclasses.asdict(row) for row in rows])


async def list_sent(connection: AsyncConnection, number: str, ids: Sequence[str]) -> list[SentRow]:
    """List those of a device's messages with these ids that are kept, in the order of sending."""
    found = [SentRow(*row) for row in await select_paged(connection, _BY_ID, "ids", ids, of_number=number)]
    return sorted(found, key=lambda row: row.position)


async def list_waiting(connection: AsyncConnection, fleet: str) -> list[SentRow]:
    """List the messages of a fleet that wait for a session. Reads all messages of the fleet, for use at its start."""
    rows = await connection.execute(
        sa.select(sent).where(sent.c.fleet == fleet, sent.c.waits).order_by(sent.c.position)
    )
    return [SentRow(*row) for row in rows]


async def save(connection: AsyncConnection, rows: Sequence[SentRow]) -> None:
    """Record how messages were sent again."""
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
    """Delete messages of a fleet sent before `before` (Unix milliseconds), or at positions up to `position`."""
    await connection.execute(
        sent.delete().where(sent.c.fleet == fleet, sa.or_(sent.c.position <= position, sent.c.sent_at < before))
    )


async def delete_below(connection: AsyncConnection, fleet: str, position: int) -> None:
    """Delete messages of a fleet at positions up to `position`."""
    await connection.execute(sent.delete().where(sent.c.fleet == fleet, sent.c.position <= position))


async def list_of_number(
    connection: AsyncConnection, fleet: str, number: str, *, after: int, limit: int
) -> list[SentRow]:
    """List the messages that one device sent behind a position, in order."""
    chosen = sa.select(sent).where(sent.c.fleet == fleet, sent.c.position > after, sent.c.number == number)
    return [SentRow(*row) for row in await connection.execute(chosen.order_by(sent.c.position).limit(limit))]
