"""Encryption sessions of devices with their peers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.database import any_of, insert_or_update
from tidings.storage.handset.tables import sessions

_CHUNK = 1000  # values in one IN (…)
_SESSIONS = sa.select(sessions).where(sa.tuple_(sessions.c.number, sessions.c.peer).in_(any_of("pairs")))


@dataclasses.dataclass(frozen=True, slots=True)
class Session:
    """One session with a peer in its two halves, sealed."""

    number: str
    peer: str
    sending: bytes
    receiving: bytes


async def save_sessions(connection: AsyncConnection, rows: Sequence[Session]) -> None:
    """Keep sessions, new or changed."""
    if rows:
        statement = insert_or_update(connection, sessions, ("number", "peer"), ("sending", "receiving"))
        await connection.execute(
            statement,
            [{"number": s.number, "peer": s.peer, "sending": s.sending, "receiving": s.receiving} for s in rows],
        )


async def list_sessions(connection: AsyncConnection, wanted: Iterable[tuple[str, str]]) -> list[Session]:
    """Those of these (number, peer) that exist."""
    asked = list(wanted)
    found: list[Session] = []
    for start in range(0, len(asked), _CHUNK // 2):
        pairs = asked[start : start + _CHUNK // 2]
        rows = await connection.execute(_SESSIONS, {"pairs": pairs})
        found += [Session(*row) for row in rows]
    return found


async def delete_sessions(connection: AsyncConnection, gone: Iterable[tuple[str, str]]) -> None:
    """Forget the sessions of these (number, peer)."""
    pairs = list(gone)
    for start in range(0, len(pairs), _CHUNK // 2):
        await connection.execute(
            sessions.delete().where(
                sa.tuple_(sessions.c.number, sessions.c.peer).in_(pairs[start : start + _CHUNK // 2])
            )
        )
