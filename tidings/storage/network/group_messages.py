"""Messages to groups with copies that the network holds in memory only: one row each, until every copy is decided."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, delete_listed, insert_or_ignore, select_paged
from tidings.storage.network import messages
from tidings.storage.network.messages import StoredMessage
from tidings.storage.network.tables import metadata
from tidings.storage.rows import write_rows

table = metadata.table(
    "group_messages",
    *messages.columns(),
    sa.Column("copies", types.long_text(), nullable=False),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroupMessage(StoredMessage):
    """Message to a group. Its `seq` is the highest of those of its copies that are not envelopes of a mailbox."""

    # Recipient -> `seq` of its copy, for copies that are not envelopes of a mailbox.
    copies: Mapping[str, int]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, int]).decode


def _message(row: Sequence[Any]) -> StoredGroupMessage:
    fields, (copies,) = messages.read(row)
    return StoredGroupMessage(*fields, copies=_decode(copies))


async def add(connection: AsyncConnection, kept: Sequence[StoredGroupMessage]) -> None:
    """Store messages. Existing ones stay unchanged."""
    await write_rows(
        connection,
        insert_or_ignore(connection, table),
        [{**messages.values(message), "copies": _encode(message.copies).decode()} for message in kept],
    )


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
