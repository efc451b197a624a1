"""Messages of recipients that could not be decrypted.

A row is either a message that was requested again, until it arrives or is given up, or the number of further such
messages of one sender, until it is reported to the webhook.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, delete_listed, save_rows


@dataclasses.dataclass(frozen=True, slots=True)
class UndecryptedMessage:
    """Message that was requested again, or number of further undecryptable messages of one sender."""

    # Id of the message, or of the count.
    id: Annotated[str, types.key(64)]
    shard: int
    account: Annotated[str, types.key(20)]
    sender: Annotated[str, types.key(20)]
    # Unix milliseconds at which the network accepted the message, or the first of the counted ones.
    timestamp: types.UnixMilliseconds
    # Unix milliseconds at which the message is given up, or the count reported.
    due_at: types.UnixMilliseconds
    request_id: Annotated[str, types.key(64)] = ""
    # Number of messages; 0 for a single message.
    counted: int = 0


table = metadata.table_of(UndecryptedMessage, "undecrypted_messages", key=("id",))


_DELETE = table.delete().where(table.c.id.in_(any_of("ids")))


async def add(connection: AsyncConnection, messages: Sequence[UndecryptedMessage]) -> None:
    """Add rows. Of existing ones only the count is changed."""
    await save_rows(connection, table, messages, ("counted",))


async def delete(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Delete rows of messages that arrived or were reported to the webhook."""
    await delete_listed(connection, _DELETE, "ids", ids)


async def list_all(connection: AsyncConnection, shard: int) -> Sequence[UndecryptedMessage]:
    """List the rows of a shard, first due first; a new owner starts from this list."""
    rows = await connection.execute(sa.select(table).where(table.c.shard == shard).order_by(table.c.due_at, table.c.id))
    return [UndecryptedMessage(*row) for row in rows]
