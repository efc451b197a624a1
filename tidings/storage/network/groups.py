"""Groups of the network: participants, invite codes, icons, and the messages accepted for each group."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, insert_or_ignore, insert_or_update, select_paged
from tidings.storage.network.tables import metadata
from tidings.storage.row_lists import any_row_of, row_list
from tidings.storage.rows import write_rows

members = metadata.table(
    "group_chat_members",
    sa.Column("group_id", types.key(32), primary_key=True),
    sa.Column("number", types.key(15), primary_key=True),
    sa.Column("admin", sa.Boolean, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Index("group_chat_members_by_number", "number"),
)

icons = metadata.table(
    "group_chat_icons",
    sa.Column("group_id", types.key(32), primary_key=True),
    sa.Column("data", types.blob(), nullable=False),
)

sends = metadata.table(
    "group_chat_sends",
    sa.Column("sender", types.key(15), primary_key=True),
    sa.Column("id", types.key(64), primary_key=True),
    sa.Column("taken_at", types.milliseconds(), nullable=False),
    sa.Index("group_chat_sends_by_age", "taken_at"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Chat:
    """Group. A group without members is kept, so that its id is never used again."""

    id: Annotated[str, types.key(32)]
    creator: Annotated[str, types.key(15)]
    subject: Annotated[str, types.text(100)]
    created_at: types.UnixMilliseconds
    # Starts at 1; increases whenever a participant joins, leaves or is removed.
    epoch: Annotated[int, sa.BigInteger]
    # Invite code, with which a number joins.
    code: Annotated[str, types.key(32)]
    # MIME type of the icon; empty without an icon.
    icon_type: Annotated[str, types.key(16)]


chats = metadata.table_of(Chat, "group_chats", sa.Index("group_chats_by_code", "code", unique=True), key=("id",))


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """Participant of a group."""

    number: str
    admin: bool
    # Lower for participants who joined earlier.
    position: int


async def add(connection: AsyncConnection, chat: Chat) -> None:
    """Add a group without members. Its id and its code must be unused."""
    await connection.execute(chats.insert(), [dataclasses.asdict(chat)])


async def list_taken_ids(connection: AsyncConnection, ids: Sequence[str]) -> set[str]:
    """Return those of the given ids that are in use or were in use."""
    rows = await connection.execute(sa.select(chats.c.id).where(chats.c.id.in_(ids)))
    return set(rows.scalars())


_CHATS = sa.select(chats).where(chats.c.id.in_(any_of("ids"))).order_by(chats.c.id)
_CHATS_LOCKED = _CHATS.with_for_update()


async def list_chats(connection: AsyncConnection, ids: Collection[str], *, lock: bool = False) -> dict[str, Chat]:
    """Return those of the given groups that exist. With `lock` they do not change until the transaction ends."""
    # Rows are locked in the order of the ids, so that two transactions do not deadlock.
    rows = await select_paged(connection, _CHATS_LOCKED if lock else _CHATS, "ids", sorted(ids))
    return {row.id: Chat(*row) for row in rows}


async def find_id(connection: AsyncConnection, code: str) -> str | None:
    """Find the group that has this invite code at present."""
    found: str | None = (await connection.execute(sa.select(chats.c.id).where(chats.c.code == code))).scalar()
    return found


_MEMBERS = sa.select(members).where(members.c.group_id.in_(any_of("ids"))).order_by(members.c.position)


async def list_members(connection: AsyncConnection, ids: Collection[str]) -> dict[str, list[Member]]:
    """List the participants of each group in the order in which they joined. The list of an empty group is empty."""
    found: dict[str, list[Member]] = {id_: [] for id_ in ids}
    for group_id, number, admin, position in await select_paged(connection, _MEMBERS, "ids", ids):
        found[group_id].append(Member(number, bool(admin), position))
    return found


async def list_of(connection: AsyncConnection, number: str, *, limit: int) -> Sequence[Chat]:
    """List the groups that a number is in, by id."""
    rows = await connection.execute(
        sa.select(chats)
        .join(members, members.c.group_id == chats.c.id)
        .where(members.c.number == number)
        .order_by(chats.c.id)
        .limit(limit)
    )
    return [Chat(*row) for row in rows]


async def count_of(connection: AsyncConnection, number: str) -> int:
    """Count the groups that a number is in."""
    query = sa.select(sa.func.count()).select_from(members).where(members.c.number == number)
    return int((await connection.execute(query)).scalar_one())


async def set_subject(connection: AsyncConnection, id: str, subject: str) -> None:
    """Set the subject of a group."""
    await connection.execute(chats.update().where(chats.c.id == id).values(subject=subject))


async def set_code(connection: AsyncConnection, id: str, code: str) -> None:
    """Set the invite code of a group. The earlier code becomes void."""
    await connection.execute(chats.update().where(chats.c.id == id).values(code=code))


async def set_epoch(connection: AsyncConnection, id: str, epoch: int) -> None:
    """Set the epoch of a group after a change of its participants."""
    await connection.execute(chats.update().where(chats.c.id == id).values(epoch=epoch))


async def put_members(connection: AsyncConnection, id: str, added: Sequence[Member]) -> None:
    """Add members. An existing one gets the given rights and position."""
    if added:
        await connection.execute(
            insert_or_update(connection, members),
            [
                {"group_id": id, "number": member.number, "admin": member.admin, "position": member.position}
                for member in added
            ],
        )


async def remove_members(connection: AsyncConnection, id: str, numbers: Sequence[str]) -> None:
    """Remove members from a group."""
    await connection.execute(members.delete().where((members.c.group_id == id) & members.c.number.in_(numbers)))


async def set_icon(connection: AsyncConnection, id: str, icon_type: str, data: bytes) -> None:
    """Set the icon of a group; an empty `icon_type` removes it."""
    await connection.execute(chats.update().where(chats.c.id == id).values(icon_type=icon_type))
    if icon_type:
        await connection.execute(insert_or_update(connection, icons), [{"group_id": id, "data": data}])
    else:
        await connection.execute(icons.delete().where(icons.c.group_id == id))


async def find_icon(connection: AsyncConnection, id: str) -> bytes | None:
    """Return the bytes of a group's icon."""
    found: bytes | None = (await connection.execute(sa.select(icons.c.data).where(icons.c.group_id == id))).scalar()
    return found


_SENDS = sa.select(sends.c.sender, sends.c.id).where(any_row_of("keys", sends.c.sender, sends.c.id))


async def list_sends(connection: AsyncConnection, keys: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of the given messages, (sender, id), that were accepted."""
    rows = await select_paged(connection, _SENDS, "keys", keys, 500, as_list=row_list)
    return {(sender, id_) for sender, id_ in rows}


async def add_sends(connection: AsyncConnection, keys: Collection[tuple[str, str]], now: int) -> None:
    """Record that messages, (sender, id), were accepted at `now` (Unix milliseconds)."""
    rows = [{"sender": sender, "id": id_, "taken_at": now} for sender, id_ in keys]
    await write_rows(connection, insert_or_ignore(connection, sends), rows)


async def drop_sends(connection: AsyncConnection, before: int) -> int:
    """Delete records of messages accepted before `before` (Unix milliseconds). Returns the number deleted."""
    return (await connection.execute(sends.delete().where(sends.c.taken_at < before))).rowcount
