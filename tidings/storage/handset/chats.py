"""Chats of a number as its page shows them: messages in both directions, reactions, and notices.

They are a projection of the inbox and of the sent messages. The process that runs the number assigns positions, which
increase with each row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, insert_or_update, select_paged
from tidings.storage.handset.tables import metadata
from tidings.storage.rows import write_instances

NOTICE = "notice"  # kind of an item that no person sent
# States of a received item, and of one of the number itself in their order.
UNREAD, SEEN = "unread", "seen"
QUEUED, SENT, DELIVERED, READ = "queued", "sent", "delivered", "read"
# Own message that the network refused or could not deliver.
FAILED, EXPIRED = "failed", "expired"


@dataclasses.dataclass(frozen=True, slots=True)
class ChatItemRow:
    """Message, reaction or notice in a chat."""

    number: Annotated[str, types.key(20)]
    position: Annotated[int, sa.BigInteger]
    # Number of the peer, or id of the group.
    chat: Annotated[str, types.key(32)]
    # Of the message; empty for a notice.
    id: Annotated[str, types.key(64)]
    # Number of the sender; empty for a notice.
    author: Annotated[str, types.key(20)]
    kind: Annotated[str, types.key(16)]
    at: types.UnixMilliseconds
    # JSON, sealed.
    content: Annotated[str, types.long_text()]
    state: Annotated[str, types.key(12)]
    # Message that it reacts to or withdraws; empty for none. Such an item is not shown as a message.
    about: Annotated[str, types.key(64)] = ""
    # Position in the inbox of a received message, in the outbox of a sent one; 0 for none.
    source: Annotated[int, sa.BigInteger] = 0
    # Numbers that have received and read a group message, by state; the reason of a failure.
    receipts: Annotated[Mapping[str, Sequence[str]], types.json(dict[str, list[str]])] = dataclasses.field(
        default_factory=dict
    )


items = metadata.table_of(
    ChatItemRow,
    "handset_chat_items",
    sa.Index("handset_chat_items_by_chat", "number", "chat", "position"),
    sa.Index("handset_chat_items_by_id", "number", "id"),
    sa.Index("handset_chat_items_by_about", "number", "about"),
    key=("number", "position"),
)


_progress = metadata.table(
    "handset_chat_progress",
    sa.Column("number", types.key(20), primary_key=True),
    # The fields of `LastItem`.
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("received", sa.BigInteger, nullable=False),
    sa.Column("sent", sa.BigInteger, nullable=False),
)


@dataclasses.dataclass(frozen=True, slots=True)
class ChatSummary:
    """Chat in the list of all chats."""

    chat: str
    unread: int  # messages
    last: ChatItemRow


@dataclasses.dataclass(frozen=True, slots=True)
class LastItem:
    """Progress of the projection; each position is 0 for none."""

    position: int
    received: int  # position in the inbox
    sent: int  # position in the outbox


_ADD = items.insert()
_OF_NUMBER = items.c.number == sa.bindparam("of_number")
_BY_ID = sa.select(items).where(_OF_NUMBER, items.c.id.in_(any_of("ids")))
_ABOUT = sa.select(items).where(_OF_NUMBER, items.c.about.in_(any_of("ids"))).order_by(items.c.position)
_BY_POSITION = sa.select(items).where(_OF_NUMBER, items.c.position.in_(any_of("positions")))
_CHANGE = (
    items.update()
    .where(_OF_NUMBER, items.c.position == sa.bindparam("at_position"))
    .values(state=sa.bindparam("new_state"), receipts=sa.bindparam("new_receipts"))
)


async def add(connection: AsyncConnection, rows: Sequence[ChatItemRow]) -> None:
    """Add items. Raises `IntegrityError` when a position is taken."""
    await write_instances(connection, _ADD, rows)


async def find_last(connection: AsyncConnection, number: str) -> LastItem:
    """Return the last positions of a number's items, deleted ones included."""
    last = sa.select(
        sa.func.max(items.c.position),
        sa.func.max(sa.case((items.c.author != number, items.c.source), else_=0)),
        sa.func.max(sa.case((items.c.author == number, items.c.source), else_=0)),
    ).where(items.c.number == number)
    stored = sa.select(_progress.c.position, _progress.c.received, _progress.c.sent).where(_progress.c.number == number)
    # A release that stores no progress may have added items.
    found = [*await connection.execute(last), *await connection.execute(stored)]
    return LastItem(*(max(position or 0 for position in column) for column in zip(*found, strict=True)))


async def save_last(connection: AsyncConnection, number: str, last: LastItem) -> None:
    """Store the last positions of a number's items, so that they outlive the items."""
    statement = insert_or_update(connection, _progress)
    await connection.execute(statement, [{"number": number, **dataclasses.asdict(last)}])


async def list_chats(connection: AsyncConnection, number: str, limit: int) -> list[ChatSummary]:
    """List the chats of a number, the one with the newest item first."""
    newest = sa.func.max(items.c.position).label("newest")
    unread = sa.func.sum(sa.case((sa.and_(items.c.state == UNREAD, items.c.about == ""), 1), else_=0))
    found = (
        await connection.execute(
            sa.select(items.c.chat, newest, unread)
            .where(items.c.number == number)
            .group_by(items.c.chat)
            .order_by(newest.desc())
            .limit(limit)
        )
    ).all()
    last = {row.position: row for row in await list_at(connection, number, [row[1] for row in found])}
    return [ChatSummary(chat, int(count or 0), last[position]) for chat, position, count in found if position in last]


async def list_all(connection: AsyncConnection, number: str) -> list[str]:
    """List the ids of all chats of a number, in ascending order."""
    chosen = sa.select(items.c.chat).where(items.c.number == number).distinct().order_by(items.c.chat)
    return list((await connection.execute(chosen)).scalars())


async def list_sent(connection: AsyncConnection, number: str, kind: str) -> list[ChatItemRow]:
    """List the messages of one kind that a number has sent, in order, without those that were not delivered."""
    lost = items.c.state.in_((FAILED, EXPIRED))
    chosen = sa.select(items).where(items.c.number == number, items.c.author == number, items.c.kind == kind, ~lost)
    return [ChatItemRow(*row) for row in await connection.execute(chosen.order_by(items.c.position))]


async def list_page(
    connection: AsyncConnection, number: str, chat: str, *, before: int, limit: int
) -> list[ChatItemRow]:
    """List the newest messages and notices of a chat before a position, in order.

    before: position; 0 for the end of the chat
    """
    chosen = sa.select(items).where(items.c.number == number, items.c.chat == chat, items.c.about == "")
    if before:
        chosen = chosen.where(items.c.position < before)
    rows = await connection.execute(chosen.order_by(items.c.position.desc()).limit(limit))
    return [ChatItemRow(*row) for row in rows][::-1]


async def list_at(connection: AsyncConnection, number: str, positions: Iterable[int]) -> list[ChatItemRow]:
    """List the items at these positions."""
    rows = await select_paged(connection, _BY_POSITION, "positions", positions, of_number=number)
    return [ChatItemRow(*row) for row in rows]


async def list_by_id(connection: AsyncConnection, number: str, ids: Iterable[str]) -> list[ChatItemRow]:
    """List the items with these ids."""
    rows = await select_paged(connection, _BY_ID, "ids", ids, of_number=number)
    return [ChatItemRow(*row) for row in rows]


async def list_about(connection: AsyncConnection, number: str, ids: Iterable[str]) -> list[ChatItemRow]:
    """List the reactions to these messages, and their withdrawals, in order."""
    rows = await select_paged(connection, _ABOUT, "ids", ids, of_number=number)
    return [ChatItemRow(*row) for row in rows]


async def list_unread(
    connection: AsyncConnection, number: str, chat: str, *, up_to: int = 0, limit: int
) -> list[ChatItemRow]:
    """List the oldest received items of a chat whose receipt `read` was not sent, in order.

    up_to: last position; 0 for all
    """
    chosen = sa.select(items).where(items.c.number == number, items.c.chat == chat, items.c.state == UNREAD)
    if up_to:
        chosen = chosen.where(items.c.position <= up_to)
    rows = await connection.execute(chosen.order_by(items.c.position).limit(limit))
    return [ChatItemRow(*row) for row in rows]


async def save_states(connection: AsyncConnection, rows: Sequence[ChatItemRow]) -> None:
    """Store the state and the receipts of items."""
    if rows:
        changes = [
            {
                "of_number": row.number,
                "at_position": row.position,
                "new_state": row.state,
                "new_receipts": row.receipts,
            }
            for row in rows
        ]
        await connection.execute(_CHANGE, changes)


async def delete_old(connection: AsyncConnection, number: str, *, before: int, position: int) -> int:
    """Delete a number's items from before `before` (Unix milliseconds), and those at positions up to `position`.

    Returns the number deleted.
    """
    old = sa.or_(items.c.at < before, items.c.position <= position)
    return (await connection.execute(items.delete().where(items.c.number == number, old))).rowcount
