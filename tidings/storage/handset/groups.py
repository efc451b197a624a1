"""What recipients keep of groups: those they are in, the sender keys of everybody there, and who has their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.database import insert_or_ignore, pages, save_rows
from tidings.storage.handset.tables import groups, key_holders, sender_keys
from tidings.storage.row_lists import any_row_of, row_list

Key = tuple[str, str, str]  # number, group, sender
LEAVING = -1


@dataclasses.dataclass(frozen=True, slots=True)
class GroupRow:
    """One group that a number is in.

    epoch:   of which everybody in the group has this number's sender key; 0 when that is to be found out; `LEAVING`
             while the key is on its way to members who are not kept as holders yet.
    version: grows with everything that may change who must have the key.
    """

    number: str
    group_id: str
    subject: str
    epoch: int
    version: int


@dataclasses.dataclass(frozen=True, slots=True)
class SenderKeyRow:
    """The chains of one sender in a group as a number holds them, sealed; its own when it is the sender itself."""

    number: str
    group_id: str
    sender: str
    record: bytes


async def save_group(connection: AsyncConnection, group: GroupRow) -> None:
    """Keep a group, new or changed."""
    await save_rows(connection, groups, ("number", "group_id"), ("subject", "epoch", "version"), [group])


async def find_group(connection: AsyncConnection, number: str, group: str) -> GroupRow | None:
    """What is kept of one group."""
    query = sa.select(groups).where((groups.c.number == number) & (groups.c.group_id == group))
    row = (await connection.execute(query)).first()
    return GroupRow(*row) if row else None


async def list_groups(connection: AsyncConnection, number: str) -> list[GroupRow]:
    """The groups of a number, by id."""
    rows = await connection.execute(sa.select(groups).where(groups.c.number == number).order_by(groups.c.group_id))
    return [GroupRow(*row) for row in rows]


async def delete_group(connection: AsyncConnection, number: str, group: str) -> None:
    """Forget a group with all its keys."""
    for table in (groups, sender_keys, key_holders):
        await connection.execute(table.delete().where((table.c.number == number) & (table.c.group_id == group)))


async def save_keys(connection: AsyncConnection, rows: Sequence[SenderKeyRow]) -> None:
    """Keep sender keys, new or changed."""
    await save_rows(connection, sender_keys, ("number", "group_id", "sender"), ("record",), rows)


_KEYS = sa.select(sender_keys).where(
    any_row_of("keys", sender_keys.c.number, sender_keys.c.group_id, sender_keys.c.sender)
)


async def list_keys(connection: AsyncConnection, wanted: Collection[Key]) -> list[SenderKeyRow]:
    """Those of these sender keys that exist."""
    found: list[SenderKeyRow] = []
    for page in pages(list(wanted), 300):
        rows = await connection.execute(_KEYS, {"keys": row_list(page)})
        found += [SenderKeyRow(*row) for row in rows]
    return found


async def delete_key(connection: AsyncConnection, number: str, group: str, sender: str) -> None:
    """Forget one sender key."""
    table = sender_keys
    await connection.execute(
        table.delete().where((table.c.number == number) & (table.c.group_id == group) & (table.c.sender == sender))
    )


async def add_holders(connection: AsyncConnection, number: str, group: str, peers: Iterable[str]) -> None:
    """These have the number's own sender key of the group."""
    rows = [{"number": number, "group_id": group, "peer": peer} for peer in peers]
    if rows:
        await connection.execute(insert_or_ignore(connection, key_holders), rows)


async def list_holders(connection: AsyncConnection, number: str, group: str) -> set[str]:
    """Who has the number's own sender key of the group."""
    rows = await connection.execute(
        sa.select(key_holders.c.peer).where((key_holders.c.number == number) & (key_holders.c.group_id == group))
    )
    return set(rows.scalars())


async def delete_holders(connection: AsyncConnection, number: str, group: str) -> None:
    """Nobody has it: there is another."""
    table = key_holders
    await connection.execute(table.delete().where((table.c.number == number) & (table.c.group_id == group)))


async def take_holdings(connection: AsyncConnection, number: str, peer: str) -> list[str]:
    """The groups in which a peer had the number's own sender key; it has none of them any more."""
    mine = (key_holders.c.number == number) & (key_holders.c.peer == peer)
    found = list((await connection.execute(sa.select(key_holders.c.group_id).where(mine))).scalars())
    await connection.execute(key_holders.delete().where(mine))
    return found
