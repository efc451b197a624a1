"""Sender keys of groups, sealed: the business's own keys with their holders, and those of other participants."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.groups import ID_LENGTH
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, execute_paged, save_rows, select_paged

GIVEN = ""  # the network has accepted, or permanently refused, the message that carries the key
LACKS = "-"  # the participant may have had the key and needs it again


@dataclasses.dataclass(frozen=True, slots=True)
class OwnKey:
    """Key that encrypts the business's messages to one group."""

    account: Annotated[str, types.key(20)]
    group_id: Annotated[str, types.key(ID_LENGTH)]
    # Epoch of the group when the key was made.
    epoch: Annotated[int, sa.BigInteger]
    record: bytes


own_keys = metadata.table_of(OwnKey, "own_sender_keys", key=("account", "group_id"))


@dataclasses.dataclass(frozen=True, slots=True)
class KeyHolder:
    """Participant who may have an own key."""

    account: Annotated[str, types.key(20)]
    group_id: Annotated[str, types.key(ID_LENGTH)]
    member: Annotated[str, types.key(20)]
    # Id of the job that sends the key, `GIVEN` or `LACKS`.
    job: Annotated[str, types.key(64)]


holders = metadata.table_of(
    KeyHolder,
    "sender_key_holders",
    sa.Index("sender_key_holders_by_job", "account", "job"),
    key=("account", "group_id", "member"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class PeerKey:
    """Key that encrypts one participant's messages to one group."""

    account: Annotated[str, types.key(20)]
    sender: Annotated[str, types.key(20)]
    group_id: Annotated[str, types.key(ID_LENGTH)]
    record: bytes


peer_keys = metadata.table_of(PeerKey, "peer_sender_keys", key=("account", "sender", "group_id"))


async def save_own(connection: AsyncConnection, keys: Sequence[OwnKey]) -> None:
    """Save own keys, new or used ones."""
    await save_rows(connection, own_keys, keys)


async def list_own(connection: AsyncConnection, account: str, groups: Sequence[str]) -> Sequence[OwnKey]:
    """List the existing own keys of these groups."""
    query = sa.select(own_keys).where(own_keys.c.account == account, own_keys.c.group_id.in_(any_of("groups")))
    return [OwnKey(*row) for row in await select_paged(connection, query, "groups", groups)]


async def save_holders(connection: AsyncConnection, rows: Sequence[KeyHolder]) -> None:
    """Save holders of own keys, and overwrite earlier rows of them."""
    await save_rows(connection, holders, rows)


async def clear_holders(connection: AsyncConnection, account: str, groups: Sequence[str]) -> None:
    """Delete all holders of the own keys of these groups, which are about to be replaced."""
    delete = holders.delete().where(holders.c.account == account, holders.c.group_id.in_(any_of("groups")))
    await execute_paged(connection, delete, "groups", groups)


async def list_holders(connection: AsyncConnection, account: str, groups: Sequence[str]) -> Sequence[KeyHolder]:
    """List the participants who may have the own keys of these groups."""
    query = sa.select(holders).where(holders.c.account == account, holders.c.group_id.in_(any_of("groups")))
    return [KeyHolder(*row) for row in await select_paged(connection, query, "groups", groups)]


async def list_under_way(connection: AsyncConnection, account: str) -> Sequence[KeyHolder]:
    """List the participants to whom a key is being sent, according to the table."""
    # Job ids are letters and digits, which sort after `GIVEN` and `LACKS`: an index range instead of a scan.
    query = sa.select(holders).where(holders.c.account == account, holders.c.job > LACKS)
    return [KeyHolder(*row) for row in await connection.execute(query)]


async def save_peers(connection: AsyncConnection, keys: Sequence[PeerKey]) -> None:
    """Save keys of other participants, new or used ones."""
    await save_rows(connection, peer_keys, keys)


_PEERS = sa.select(peer_keys).where(
    peer_keys.c.account == sa.bindparam("account"), peer_keys.c.sender.in_(any_of("senders"))
)


async def list_peers(connection: AsyncConnection, account: str, senders: Sequence[str]) -> Sequence[PeerKey]:
    """List the keys of these participants, for all groups."""
    return [PeerKey(*row) for row in await select_paged(connection, _PEERS, "senders", senders, account=account)]


async def delete_peers(connection: AsyncConnection, account: str, group_id: str, senders: Sequence[str]) -> None:
    """Delete the keys of participants who have left."""
    in_group = (peer_keys.c.account == account, peer_keys.c.group_id == group_id)
    delete = peer_keys.delete().where(*in_group, peer_keys.c.sender.in_(any_of("senders")))
    await execute_paged(connection, delete, "senders", senders)


async def clear(connection: AsyncConnection, account: str) -> None:
    """Delete all sender keys of an account, its own and others', as after a restored backup."""
    for table in (own_keys, holders, peer_keys):
        await connection.execute(table.delete().where(table.c.account == account))
