"""Encryption sessions with recipients, in two sealed columns. Sending changes only the first of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, insert_or_update, pages
from tidings.storage.rows import write_rows

table = sa.Table(
    "sessions",
    metadata,
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("peer", types.key(20), primary_key=True),
    sa.Column("sending", types.blob(), nullable=False),
    sa.Column("receiving", types.blob(), nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class SealedSession:
    """Session with one recipient, sealed."""

    account: str
    peer: str
    sending: bytes
    receiving: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class SealedSendingHalf:
    """Sending half of a session, sealed. Sending a message changes nothing else."""

    account: str
    peer: str
    sending: bytes


async def save(connection: AsyncConnection, sessions: Sequence[SealedSession]) -> None:
    """Save whole sessions: new ones, or after receiving."""
    if sessions:
        statement = insert_or_update(connection, table, ("account", "peer"), ("sending", "receiving"))
        await write_rows(
            connection,
            statement,
            [{"account": s.account, "peer": s.peer, "sending": s.sending, "receiving": s.receiving} for s in sessions],
        )


async def save_sending(connection: AsyncConnection, halves: Sequence[SealedSendingHalf]) -> None:
    """Save the sending halves of existing sessions. Their other columns stay unchanged."""
    if halves:
        # One statement for all rows. The receiving half in it is never inserted, because the rows exist.
        statement = insert_or_update(connection, table, ("account", "peer"), ("sending",))
        await write_rows(
            connection,
            statement,
            [{"account": h.account, "peer": h.peer, "sending": h.sending, "receiving": b""} for h in halves],
        )


_SESSIONS = sa.select(table).where(table.c.account == sa.bindparam("account"), table.c.peer.in_(any_of("peers")))


async def list_sessions(connection: AsyncConnection, account: str, peers: Sequence[str]) -> Sequence[SealedSession]:
    """List the existing sessions with these peers."""
    found: list[SealedSession] = []
    for page in pages(peers):
        rows = await connection.execute(_SESSIONS, {"account": account, "peers": page})
        found += [SealedSession(*row) for row in rows]
    return found


async def delete(connection: AsyncConnection, account: str, peers: Sequence[str]) -> None:
    """Delete the sessions with these peers. The next message to a peer opens a new session."""
    for page in pages(peers):
        await connection.execute(table.delete().where(table.c.account == account, table.c.peer.in_(page)))


async def clear(connection: AsyncConnection, account: str) -> None:
    """Delete all sessions of an account, as after a restored backup."""
    await connection.execute(table.delete().where(table.c.account == account))
