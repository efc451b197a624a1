"""Receipts and read marks of group messages: how far each recipient got, and what is unread."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.groups import ID_LENGTH
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, insert_or_ignore, pages, save_rows

receipts = sa.Table(
    "group_receipts",
    metadata,
    sa.Column("message_id", types.key(64), primary_key=True),
    sa.Column("member", types.key(20), primary_key=True),
    sa.Column("status", sa.SmallInteger, nullable=False),
    mysql_engine="InnoDB",
)

unread = sa.Table(
    "unread_group_messages",
    metadata,
    sa.Column("id", types.key(64), primary_key=True),
    sa.Column("account", types.key(20), nullable=False),
    sa.Column("group_id", types.key(ID_LENGTH), nullable=False),
    sa.Column("author", types.key(20), nullable=False),
    sa.Column("received_at", types.milliseconds(), nullable=False),
    sa.Index("unread_group_messages_by_time", "account", "group_id", "received_at"),
    sa.Index("unread_group_messages_by_age", "account", "received_at"),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Receipt:
    """Status of a message of ours to a group with one participant. status: as of messages."""

    message_id: str
    member: str
    status: int


@dataclasses.dataclass(frozen=True, slots=True)
class UnreadGroupMessage:
    """A participant's message to a group that the business has not marked as read. received_at: Unix milliseconds."""

    id: str
    account: str
    group_id: str
    author: str
    received_at: int


async def save_receipts(connection: AsyncConnection, rows: Sequence[Receipt]) -> None:
    """Keep how far messages got, over what was known."""
    await save_rows(connection, receipts, ("message_id", "member"), ("status",), rows)


_RECEIPTS = sa.select(receipts).where(
    receipts.c.message_id.in_(any_of("ids")), receipts.c.member.in_(any_of("members"))
)


async def list_receipts(
    connection: AsyncConnection, message_ids: Sequence[str], members: Sequence[str]
) -> Sequence[Receipt]:
    """What these participants are known to have received or read of these messages; at most 1,000 participants."""
    found: list[Receipt] = []
    for page in pages(message_ids):
        rows = await connection.execute(_RECEIPTS, {"ids": page, "members": members})
        found += [Receipt(*row) for row in rows]
    return found


async def delete_receipts(connection: AsyncConnection, message_ids: Sequence[str]) -> None:
    """Forget the receipts of messages that are forgotten."""
    for page in pages(message_ids):
        await connection.execute(receipts.delete().where(receipts.c.message_id.in_(page)))


async def add_unread(connection: AsyncConnection, messages: Sequence[UnreadGroupMessage]) -> None:
    """Keep new messages as unread; those that are there already stay as they are."""
    if messages:
        await connection.execute(
            insert_or_ignore(connection, unread), [dataclasses.asdict(message) for message in messages]
        )


async def list_unread(
    connection: AsyncConnection, account: str, until: str, *, limit: int
) -> Sequence[UnreadGroupMessage]:
    """The unread messages of the group of the message `until` that came no later than it, the newest `limit` of them.

    None when that one is read already, or is no group message.
    """
    last = (
        await connection.execute(
            sa.select(unread.c.group_id, unread.c.received_at).where(unread.c.id == until, unread.c.account == account)
        )
    ).first()
    if last is None:
        return ()
    rows = await connection.execute(
        sa.select(unread)
        .where(
            unread.c.account == account,
            unread.c.group_id == last.group_id,
            unread.c.received_at <= last.received_at,
        )
        # The one that was named first, whatever else came in the same millisecond.
        .order_by(sa.case((unread.c.id == until, 0), else_=1), unread.c.received_at.desc(), unread.c.id)
        .limit(limit)
    )
    return [UnreadGroupMessage(*row) for row in rows]


async def delete_unread(connection: AsyncConnection, ids: Sequence[str], *, author: str | None = None) -> None:
    """These are read, or withdrawn: those of `author` alone, where one is given."""
    theirs = () if author is None else (unread.c.author == author,)
    for page in pages(ids):
        await connection.execute(unread.delete().where(unread.c.id.in_(page), *theirs))


async def delete_unread_before(connection: AsyncConnection, account: str, before: int, limit: int) -> int:
    """Forget what came before `before` (Unix milliseconds), at most `limit`; returns how many there were."""
    rows = await connection.execute(
        sa.select(unread.c.id)
        .where(unread.c.account == account, unread.c.received_at < before)
        .order_by(unread.c.received_at)
        .limit(limit)
    )
    found = [row[0] for row in rows]
    await delete_unread(connection, found)
    return len(found)
