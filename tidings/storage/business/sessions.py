"""Encryption sessions with recipients: two sealed columns, of which sending touches only the first."""

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
class Session:
    """One session, sealed."""

    account: str
    peer: str
    sending: bytes
    receiving: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class SendingHalf:
    """Sending half of a session, sealed: all that changes when a message is sent."""

    account: str
    peer: str
    sending: bytes


async def save(connection: AsyncConnection, sessions: Sequence[Session]) -> None:
    """Keep whole sessions, new ones or after receiving."""
    if sessions:
        statement = insert_or_update(connection, table, ("account", "peer"), ("sending", "receiving"))
        await write_rows(
            connection,
            statement,
            [{"account": s.account, "peer": s.peer, "sending": s.sending, "receiving": s.receiving} for s in sessions],
        )


async def save_sending(connection: AsyncConnection, halves: Sequence[SendingHalf]) -> None:
    """Keep the sending halves of sessions that are there; their other columns stay as they are."""
    if halves:
        # One statement for all rows; the column that an insert would need is never used, since the rows exist.
        statement = insert_or_update(connection, table, ("account", "peer"), ("sending",))
        await write_rows(
            connection,
            statement,
            [{"account": h.account, "peer": h.peer, "sending": h.sending, "receiving": b""} for h in halves],
        )


_SESSIONS = sa.select(table).where(table.c.account == sa.bindparam("account"), table.c.peer.in_(any_of("peers")))


async def list_sessions(connection: AsyncConnection, account: str, peers: Sequence[str]) -> Sequence[Session]:
    """The sessions that exist with these peers."""
    found: list[Session] = []
    for page in pages(peers):
        rows = await connection.execute(_SESSIONS, {"account": account, "peers": page})
        found += [Session(*row) for row in rows]
    return found


async def delete(connection: AsyncConnection, account: str, peers: Sequence[str]) -> None:
    """Forget the sessions with these peers; the next message opens a new one."""
    for page in pages(peers):
        await connection.execute(table.delete().where(table.c.account == account, table.c.peer.in_(page)))


async def clear(connection: AsyncConnection, account: str) -> None:
    """Forget every session of an account, as after a restored backup."""
    await connection.execute(table.delete().where(table.c.account == account))
