"""Encryption sessions of devices with their peers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.database import insert_or_update, pages
from tidings.storage.handset.tables import sessions
from tidings.storage.row_lists import any_row_of, row_list
from tidings.storage.rows import write_rows

_OF_PAIRS = any_row_of("pairs", sessions.c.number, sessions.c.peer)
_SESSIONS = sa.select(sessions).where(_OF_PAIRS)
_DELETE = sessions.delete().where(_OF_PAIRS)


@dataclasses.dataclass(frozen=True, slots=True)
class SessionRow:
    """Session with a peer in two halves, sealed."""

    number: str
    peer: str
    sending: bytes
    receiving: bytes


async def save(connection: AsyncConnection, rows: Sequence[SessionRow]) -> None:
    """Save sessions, new or changed."""
    if rows:
        statement = insert_or_update(connection, sessions, ("number", "peer"), ("sending", "receiving"))
        await write_rows(
            connection,
            statement,
            [{"number": s.number, "peer": s.peer, "sending": s.sending, "receiving": s.receiving} for s in rows],
        )


async def list_sessions(connection: AsyncConnection, wanted: Iterable[tuple[str, str]]) -> list[SessionRow]:
    """List those of the given sessions, (number, peer), that exist."""
    found: list[SessionRow] = []
    for page in pages(list(wanted), 500):
        rows = await connection.execute(_SESSIONS, {"pairs": row_list(page)})
        found += [SessionRow(*row) for row in rows]
    return found


async def delete(connection: AsyncConnection, gone: Iterable[tuple[str, str]]) -> None:
    """Delete sessions, (number, peer)."""
    for page in pages(list(gone), 500):
        await connection.execute(_DELETE, {"pairs": row_list(page)})
