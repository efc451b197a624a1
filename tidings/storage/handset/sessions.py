"""Encryption sessions of devices with their peers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import execute_paged, save_rows, select_paged
from tidings.storage.handset.tables import metadata
from tidings.storage.row_lists import any_row_of, row_list


@dataclasses.dataclass(frozen=True, slots=True)
class SessionRow:
    """Session with a peer in two halves, sealed."""

    number: Annotated[str, types.key(20)]
    peer: Annotated[str, types.key(20)]
    sending: bytes
    receiving: bytes


sessions = metadata.table_of(SessionRow, "handset_sessions", key=("number", "peer"))

_OF_PAIRS = any_row_of("pairs", sessions.c.number, sessions.c.peer)
_SESSIONS = sa.select(sessions).where(_OF_PAIRS)
_DELETE = sessions.delete().where(_OF_PAIRS)


async def save(connection: AsyncConnection, rows: Sequence[SessionRow]) -> None:
    """Save sessions, new or changed."""
    await save_rows(connection, sessions, rows)


async def list_sessions(connection: AsyncConnection, wanted: Iterable[tuple[str, str]]) -> list[SessionRow]:
    """List those of the given sessions, (number, peer), that exist."""
    rows = await select_paged(connection, _SESSIONS, "pairs", wanted, 500, as_list=row_list)
    return [SessionRow(*row) for row in rows]


async def delete(connection: AsyncConnection, gone: Iterable[tuple[str, str]]) -> None:
    """Delete sessions, (number, peer)."""
    await execute_paged(connection, _DELETE, "pairs", gone, 500, as_list=row_list)
