"""Messages of recipients that could not be decrypted: those that were asked for again, until they come or are given up,
and how many more there were of whom, until the webhook hears of them together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, delete_listed, insert_or_update

table = sa.Table(
    "undecrypted_messages",
    metadata,
    sa.Column("id", types.key(64), primary_key=True),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("account", types.key(20), nullable=False),
    sa.Column("sender", types.key(20), nullable=False),
    sa.Column("timestamp", types.milliseconds(), nullable=False),
    sa.Column("due_at", types.milliseconds(), nullable=False),
    sa.Column("request_id", types.key(64), nullable=False),
    sa.Column("counted", sa.Integer, nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Undecrypted:
    """One message that was asked for, or as many as are counted.

    timestamp: when the network took it, or the first of them; due_at: when it is given up, or the webhook hears of
    them. Both Unix milliseconds. counted: 0 for one message, whose id it has.
    """

    id: str
    shard: int
    account: str
    sender: str
    timestamp: int
    due_at: int
    request_id: str = ""
    counted: int = 0


_DELETE = table.delete().where(table.c.id.in_(any_of("ids")))


async def add(connection: AsyncConnection, messages: Sequence[Undecrypted]) -> None:
    """Keep these; of those that are there already only the count changes."""
    if messages:
        await connection.execute(
            insert_or_update(connection, table, ("id",), ("counted",)),
            [
                {
                    "id": m.id,
                    "shard": m.shard,
                    "account": m.account,
                    "sender": m.sender,
                    "timestamp": m.timestamp,
                    "due_at": m.due_at,
                    "request_id": m.request_id,
                    "counted": m.counted,
                }
                for m in messages
            ],
        )


async def delete(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Forget those that came, or were reported to the webhook."""
    await delete_listed(connection, _DELETE, "ids", ids)


async def list_all(connection: AsyncConnection, shard: int) -> Sequence[Undecrypted]:
    """Those of a shard, first due first: what a new owner starts from."""
    rows = await connection.execute(sa.select(table).where(table.c.shard == shard).order_by(table.c.due_at, table.c.id))
    return [Undecrypted(*row) for row in rows]
