"""Messages to groups with copies that the network holds in memory only: one row each, until every copy is decided."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import add_rows, any_of, delete_listed, select_paged
from tidings.storage.network.messages import StoredMessage
from tidings.storage.network.tables import metadata


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroupMessage(StoredMessage):
    """Message to a group. Its `seq` is the highest of those of its copies that are not envelopes of a mailbox."""

    # Recipient -> `seq` of its copy, for copies that are not envelopes of a mailbox.
    copies: Annotated[Mapping[str, int], types.json(dict[str, int])]


table = metadata.table_of(StoredGroupMessage, "group_messages", key=("seq",))


def _message(row: Sequence[Any]) -> StoredGroupMessage:
    *fields, copies = row
    return StoredGroupMessage(*fields, copies=copies)


async def add(connection: AsyncConnection, kept: Sequence[StoredGroupMessage]) -> None:
    """Store messages. Existing ones stay unchanged."""
    await add_rows(connection, table, kept)


_FIRST = sa.select(table).order_by(table.c.seq).limit(sa.bindparam("limit")).with_for_update()
_LISTED = sa.select(table).where(table.c.seq.in_(any_of("seqs"))).order_by(table.c.seq).with_for_update()


async def list_first(connection: AsyncConnection, limit: int) -> Sequence[StoredGroupMessage]:
    """List the first messages in order, and lock them until the transaction ends."""
    return [_message(row) for row in await connection.execute(_FIRST, {"limit": limit})]


async def list_listed(connection: AsyncConnection, seqs: Sequence[int]) -> Sequence[StoredGroupMessage]:
    """List those of the given messages that exist, in order, and lock them until the transaction ends.

    Transactions that may have added one of them have ended by then, with either outcome.
    """
    return [_message(row) for row in await select_paged(connection, _LISTED, "seqs", sorted(seqs))]


_DELETE = table.delete().where(table.c.seq.in_(any_of("seqs")))


async def delete(connection: AsyncConnection, seqs: Sequence[int]) -> None:
    """Delete messages. Those that do not exist are ignored."""
    await delete_listed(connection, _DELETE, "seqs", seqs)


async def last_seq(connection: AsyncConnection) -> int:
    """Return the highest stored `seq`, 0 for none."""
    return int((await connection.execute(sa.select(sa.func.max(table.c.seq)))).scalar() or 0)
