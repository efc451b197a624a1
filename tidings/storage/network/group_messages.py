"""Messages to groups of which the network has copies in memory alone: one row each, until every copy is decided."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, delete_listed, insert_or_ignore, pages
from tidings.storage.network import messages
from tidings.storage.network.messages import Message
from tidings.storage.network.tables import metadata
from tidings.storage.rows import write_rows

table = sa.Table(
    "group_messages",
    metadata,
    *messages.columns(),
    sa.Column("copies", types.long_text(), nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupMessage(Message):
    """Message under the highest `seq` of those of its copies that are not envelopes of the mailbox.

    copies: the `seq` of each of these, by recipient.
    """

    copies: Mapping[str, int]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, int]).decode


def _message(row: Sequence[Any]) -> GroupMessage:
    fields, (copies,) = messages.read(row)
    return GroupMessage(*fields, copies=_decode(copies))


async def add(connection: AsyncConnection, kept: Sequence[GroupMessage]) -> None:
    """Keep these."""
    await write_rows(
        connection,
        insert_or_ignore(connection, table),
        [{**messages.values(message), "copies": _encode(message.copies).decode()} for message in kept],
    )


_FIRST = sa.select(table).order_by(table.c.seq).limit(sa.bindparam("limit")).with_for_update()
_LISTED = sa.select(table).where(table.c.seq.in_(any_of("seqs"))).order_by(table.c.seq).with_for_update()


async def list_first(connection: AsyncConnection, limit: int) -> Sequence[GroupMessage]:
    """The first of all, in order; locked until the transaction ends."""
    return [_message(row) for row in await connection.execute(_FIRST, {"limit": limit})]


async def list_listed(connection: AsyncConnection, seqs: Sequence[int]) -> Sequence[GroupMessage]:
    """Those of these that are there, in order; locked until the transaction ends. Transactions that may have added one
    of them have ended then, one way or the other."""
    found: list[GroupMessage] = []
    for page in pages(sorted(seqs)):
        found += [_message(row) for row in await connection.execute(_LISTED, {"seqs": list(page)})]
    return found


_DELETE = table.delete().where(table.c.seq.in_(any_of("seqs")))


async def delete(connection: AsyncConnection, seqs: Sequence[int]) -> None:
    """Forget these; those that are gone already are no matter."""
    await delete_listed(connection, _DELETE, "seqs", seqs)


async def last_seq(connection: AsyncConnection) -> int:
    """The highest `seq` that is kept, 0 when nothing is."""
    return int((await connection.execute(sa.select(sa.func.max(table.c.seq)))).scalar() or 0)
