"""Groups of recipients: the groups they are in, the sender keys of all participants, and the holders of own keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import insert_or_ignore, save_rows, select_paged
from tidings.storage.handset.tables import key_holders, metadata
from tidings.storage.row_lists import any_row_of, row_list

Key = tuple[str, str, str]  # number, group, sender
# Value of `GroupRow.epoch` while the own sender key is being sent to members who are not yet recorded as holders.
LEAVING = -1


@dataclasses.dataclass(frozen=True, slots=True)
class GroupRow:
    """Group that a number is in."""

    number: Annotated[str, types.key(20)]
    group_id: Annotated[str, types.key(32)]
    subject: Annotated[str, types.text(100)]
    # Epoch for which all participants have this number's sender key; 0 if unknown; `LEAVING` while it is being sent.
    epoch: Annotated[int, sa.BigInteger]
    # Increases with everything that may change who must have the key.
    version: Annotated[int, sa.BigInteger]


groups = metadata.table_of(GroupRow, "handset_groups", key=("number", "group_id"))


@dataclasses.dataclass(frozen=True, slots=True)
class SenderKeyRow:
    """Chains of one sender in a group as a number holds them, sealed. The sender may be the number itself."""

    number: Annotated[str, types.key(20)]
    group_id: Annotated[str, types.key(32)]
    sender: Annotated[str, types.key(20)]
    record: bytes


sender_keys = metadata.table_of(SenderKeyRow, "handset_sender_keys", key=("number", "group_id", "sender"))


async def save_group(connection: AsyncConnection, group: GroupRow) -> None:
    """Save a group, new or changed."""
    await save_rows(connection, groups, [group])


async def find_group(connection: AsyncConnection, number: str, group: str) -> GroupRow | None:
    """Find one group."""
    query = sa.select(groups).where((groups.c.number == number) & (groups.c.group_id == group))
    row = (await connection.execute(query)).first()
    return GroupRow(*row) if row else None


async def list_groups(connection: AsyncConnection, number: str) -> list[GroupRow]:
    """List the groups of a number, by id."""
    rows = await connection.execute(sa.select(groups).where(groups.c.number == number).order_by(groups.c.group_id))
    return [GroupRow(*row) for row in rows]


async def delete_group(connection: AsyncConnection, number: str, group: str) -> None:
    """Delete a group with all its keys."""
    for table in (groups, sender_keys, key_holders):
        await connection.execute(table.delete().where((table.c.number == number) & (table.c.group_id == group)))


async def save_keys(connection: AsyncConnection, rows: Sequence[SenderKeyRow]) -> None:
    """Save sender keys, new or changed."""
    await save_rows(connection, sender_keys, rows)


_KEYS = sa.select(sender_keys).where(
    any_row_of("keys", sender_keys.c.number, sender_keys.c.group_id, sender_keys.c.sender)
)


async def list_keys(connection: AsyncConnection, wanted: Collection[Key]) -> list[SenderKeyRow]:
    """List those of the given sender keys that exist."""
    rows = await select_paged(connection, _KEYS, "keys", wanted, 300, as_list=row_list)
    return [SenderKeyRow(*row) for row in rows]


async def delete_key(connection: AsyncConnection, number: str, group: str, sender: str) -> None:
    """Delete one sender key."""
    table = sender_keys
    await connection.execute(
        table.delete().where((table.c.number == number) & (table.c.group_id == group) & (table.c.sender == sender))
    )


async def add_holders(connection: AsyncConnection, number: str, group: str, peers: Iterable[str]) -> None:
    """Record that `peers` have the number's own sender key of the group."""
    rows = [{"number": number, "group_id": group, "peer": peer} for peer in peers]
    if rows:
        await connection.execute(insert_or_ignore(connection, key_holders), rows)


async def list_holders(connection: AsyncConnection, number: str, group: str) -> set[str]:
    """Return the peers that have the number's own sender key of the group."""
    rows = await connection.execute(
        sa.select(key_holders.c.peer).where((key_holders.c.number == number) & (key_holders.c.group_id == group))
    )
    return set(rows.scalars())


async def delete_holders(connection: AsyncConnection, number: str, group: str) -> None:
    """Delete all holders of the own sender key, because it was replaced."""
    table = key_holders
    await connection.execute(table.delete().where((table.c.number == number) & (table.c.group_id == group)))


async def take_holdings(connection: AsyncConnection, number: str, peer: str) -> list[str]:
    """Return the groups in which a peer had the number's own sender key, and delete the peer as a holder."""
    mine = (key_holders.c.number == number) & (key_holders.c.peer == peer)
    found = list((await connection.execute(sa.select(key_holders.c.group_id).where(mine))).scalars())
    await connection.execute(key_holders.delete().where(mine))
    return found
