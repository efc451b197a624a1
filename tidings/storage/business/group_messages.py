"""Receipts of messages to groups, per recipient, and unread group messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.groups import ID_LENGTH
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows, any_of, execute_paged, insert_or_update, select_paged
from tidings.storage.rows import write_instances


@dataclasses.dataclass(frozen=True, slots=True)
class GroupReceipt:
    """Status of one of our messages to a group for one participant."""

    message_id: Annotated[str, types.key(64)]
    member: Annotated[str, types.key(20)]
    # A `messages.Status`.
    status: Annotated[int, sa.SmallInteger]
    # Times at which the participant reached these statuses; None for unknown. Stored times are not overwritten.
    delivered_at: Annotated[int | None, types.milliseconds()] = None
    read_at: Annotated[int | None, types.milliseconds()] = None


receipts = metadata.table_of(GroupReceipt, "group_receipts", key=("message_id", "member"))


@dataclasses.dataclass(frozen=True, slots=True)
class UnreadGroupMessage:
    """Participant's message to a group that the business has not marked as read."""

    id: Annotated[str, types.key(64)]
    account: Annotated[str, types.key(20)]
    group_id: Annotated[str, types.key(ID_LENGTH)]
    author: Annotated[str, types.key(20)]
    received_at: types.UnixMilliseconds


unread = metadata.table_of(
    UnreadGroupMessage,
    "unread_group_messages",
    sa.Index("unread_group_messages_by_time", "account", "group_id", "received_at"),
    sa.Index("unread_group_messages_by_age", "account", "received_at"),
    key=("id",),
)


async def save_receipts(connection: AsyncConnection, rows: Sequence[GroupReceipt]) -> None:
    """Save receipts, and overwrite earlier ones, except for their times."""
    times = ("delivered_at", "read_at")
    await write_instances(connection, insert_or_update(connection, receipts, ("status", *times), fill=times), rows)


_RECEIPTS = sa.select(receipts).where(
    receipts.c.message_id.in_(any_of("ids")), receipts.c.member.in_(any_of("members"))
)


async def list_receipts(
    connection: AsyncConnection, message_ids: Sequence[str], members: Sequence[str]
) -> Sequence[GroupReceipt]:
    """List the receipts of these messages from these participants, at most 1,000 participants."""
    rows = await select_paged(connection, _RECEIPTS, "ids", message_ids, members=members)
    return [GroupReceipt(*row) for row in rows]


async def delete_receipts(connection: AsyncConnection, message_ids: Sequence[str]) -> None:
    """Delete the receipts of deleted messages."""
    delete = receipts.delete().where(receipts.c.message_id.in_(any_of("ids")))
    await execute_paged(connection, delete, "ids", message_ids)


async def add_unread(connection: AsyncConnection, messages: Sequence[UnreadGroupMessage]) -> None:
    """Add new messages as unread. Existing ones stay unchanged."""
    await add_rows(connection, unread, messages)


async def list_unread(
    connection: AsyncConnection, account: str, until: str, *, limit: int
) -> Sequence[UnreadGroupMessage]:
    """List unread messages of the group of message `until` that arrived no later than it, the newest `limit` of them.

    Returns none when that message is already read or is no group message.
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
        # The named message comes first, whatever else arrived in the same millisecond.
        .order_by(sa.case((unread.c.id == until, 0), else_=1), unread.c.received_at.desc(), unread.c.id)
        .limit(limit)
    )
    return [UnreadGroupMessage(*row) for row in rows]


async def delete_unread(connection: AsyncConnection, ids: Sequence[str], *, author: str | None = None) -> None:
    """Remove read or withdrawn messages from the unread ones; with `author`, only messages of that author."""
    theirs = () if author is None else (unread.c.author == author,)
    await execute_paged(connection, unread.delete().where(unread.c.id.in_(any_of("ids")), *theirs), "ids", ids)


async def delete_unread_before(connection: AsyncConnection, account: str, before: int, limit: int) -> int:
    """Delete at most `limit` unread messages received before `before` (Unix milliseconds). Returns the number."""
    rows = await connection.execute(
        sa.select(unread.c.id)
        .where(unread.c.account == account, unread.c.received_at < before)
        .order_by(unread.c.received_at)
        .limit(limit)
    )
    found = [row[0] for row in rows]
    await delete_unread(connection, found)
    return len(found)
