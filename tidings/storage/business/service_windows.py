"""Service windows: time of the last message of each recipient, and their unread messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import (
    add_rows,
    any_of,
    execute_paged,
    insert_or_update,
    select_paged,
)
from tidings.storage.rows import write_rows

threads = metadata.table(
    "threads",
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("peer", types.key(20), primary_key=True),
    # Unix milliseconds of the last message of the peer.
    sa.Column("heard_at", types.milliseconds(), nullable=False),
)


@dataclasses.dataclass(frozen=True, slots=True)
class UnreadMessage:
    """Message of a recipient that the business has not marked as read."""

    account: Annotated[str, types.key(20)]
    peer: Annotated[str, types.key(20)]
    id: Annotated[str, types.key(64)]
    received_at: types.UnixMilliseconds


unread = metadata.table_of(
    UnreadMessage,
    "unread_messages",
    sa.Index("unread_messages_by_time", "account", "received_at"),
    key=("account", "peer", "id"),
)


async def save_last_message_at(connection: AsyncConnection, account: str, last_message_at: Mapping[str, int]) -> None:
    """Save the time of the last message of each of these recipients, Unix milliseconds. A later known one stays."""
    statement = insert_or_update(connection, threads, raised=("heard_at",))
    rows = [{"account": account, "peer": peer, "heard_at": time} for peer, time in last_message_at.items()]
    await write_rows(connection, statement, rows)


async def list_last_message_at(connection: AsyncConnection, account: str, peers: Sequence[str]) -> Mapping[str, int]:
    """Return the time of the last message of those recipients who ever wrote, Unix milliseconds."""
    of_peers = (threads.c.account == account, threads.c.peer.in_(any_of("peers")))
    query = sa.select(threads.c.peer, threads.c.heard_at).where(*of_peers)
    return dict(await select_paged(connection, query, "peers", peers))


async def add_unread(connection: AsyncConnection, messages: Sequence[UnreadMessage]) -> None:
    """Add new messages as unread. Existing ones stay unchanged."""
    await add_rows(connection, unread, messages)


async def list_unread(connection: AsyncConnection, account: str, peer: str, until: str, *, limit: int) -> Sequence[str]:
    """List unread messages of a recipient that arrived no later than message `until`, the newest `limit` of them.

    Returns none when that message is already read.
    """
    one = sa.and_(unread.c.account == account, unread.c.peer == peer)
    last = (await connection.execute(sa.select(unread.c.received_at).where(one, unread.c.id == until))).scalar()
    if last is None:
        return ()
    rows = await connection.execute(
        sa.select(unread.c.id)
        .where(one, unread.c.received_at <= last)
        # The named message comes first, whatever else arrived in the same millisecond.
        .order_by(sa.case((unread.c.id == until, 0), else_=1), unread.c.received_at.desc(), unread.c.id)
        .limit(limit)
    )
    return [row[0] for row in rows]


async def delete_unread(connection: AsyncConnection, account: str, ids_by_peer: Mapping[str, Sequence[str]]) -> None:
    """Remove read or withdrawn messages from the unread ones."""
    for peer, ids in ids_by_peer.items():
        of_peer = (unread.c.account == account, unread.c.peer == peer)
        await execute_paged(connection, unread.delete().where(*of_peer, unread.c.id.in_(any_of("ids"))), "ids", ids)


async def delete_unread_before(connection: AsyncConnection, account: str, before: int, limit: int) -> int:
    """Delete at most `limit` unread messages received before `before` (Unix milliseconds). Returns the number."""
    rows = await connection.execute(
        sa.select(unread.c.peer, unread.c.id)
        .where(unread.c.account == account, unread.c.received_at < before)
        .order_by(unread.c.received_at)
        .limit(limit)
    )
    found: dict[str, list[str]] = {}
    for peer, message_id in rows:
        found.setdefault(peer, []).append(message_id)
    await delete_unread(connection, account, found)
    return sum(map(len, found.values()))
