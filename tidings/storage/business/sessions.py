"""Encryption sessions with recipients, in two sealed columns. Sending changes only the first of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, execute_paged, save_rows, select_paged


@dataclasses.dataclass(frozen=True, slots=True)
class SealedSession:
    """Session with one recipient, sealed."""

    account: Annotated[str, types.key(20)]
    peer: Annotated[str, types.key(20)]
    sending: bytes
    receiving: bytes


table = metadata.table_of(SealedSession, "sessions", key=("account", "peer"))


@dataclasses.dataclass(frozen=True, slots=True)
class SealedSendingHalf:
    """Sending half of a session, sealed. Sending a message changes nothing else."""

    account: str
    peer: str
    sending: bytes


async def save(connection: AsyncConnection, sessions: Sequence[SealedSession]) -> None:
    """Save whole sessions: new ones, or after receiving."""
    await save_rows(connection, table, sessions)


async def save_sending(connection: AsyncConnection, halves: Sequence[SealedSendingHalf]) -> None:
    """Save the sending halves of existing sessions. Their other columns stay unchanged."""
    # One statement for all rows. The receiving half in it is never inserted, because the rows exist.
    rows = [SealedSession(half.account, half.peer, half.sending, b"") for half in halves]
    await save_rows(connection, table, rows, ("sending",))


_SESSIONS = sa.select(table).where(table.c.account == sa.bindparam("account"), table.c.peer.in_(any_of("peers")))


async def list_sessions(connection: AsyncConnection, account: str, peers: Sequence[str]) -> Sequence[SealedSession]:
    """List the existing sessions with these peers."""
    return [SealedSession(*row) for row in await select_paged(connection, _SESSIONS, "peers", peers, account=account)]


async def delete(connection: AsyncConnection, account: str, peers: Sequence[str]) -> None:
    """Delete the sessions with these peers. The next message to a peer opens a new session."""
    delete = table.delete().where(table.c.account == account, table.c.peer.in_(any_of("peers")))
    await execute_paged(connection, delete, "peers", peers)


async def clear(connection: AsyncConnection, account: str) -> None:
    """Delete all sessions of an account, as after a restored backup."""
    await connection.execute(table.delete().where(table.c.account == account))
