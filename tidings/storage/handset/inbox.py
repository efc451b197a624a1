"""Messages that devices received.

The process that runs the fleet assigns positions, which increase with each row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, execute_paged, insert_or_update, select_paged
from tidings.storage.handset import chats
from tidings.storage.handset.outbox import outbox
from tidings.storage.handset.sent import sent
from tidings.storage.handset.tables import metadata, progress
from tidings.storage.row_lists import any_row_of, row_list
from tidings.storage.rows import write_instances


@dataclasses.dataclass(frozen=True, slots=True)
class InboxRow:
    """Received message."""

    fleet: Annotated[str, types.key(40)]
    position: Annotated[int, sa.BigInteger]
    number: Annotated[str, types.key(20)]
    peer: Annotated[str, types.key(20)]
    id: Annotated[str, types.key(64)]
    # `TEXT`, `ANSWER`, `EMPTY`, `UNREADABLE` or `CONTROL`; otherwise the type of the content, in up to 16 characters.
    kind: Annotated[str, types.key(16)]
    received_at: types.UnixMilliseconds
    # Text, JSON of another type, or the reason why it could not be decrypted.
    content: Annotated[str, types.long_text()]
    # Group that it was sent to; empty for none.
    group_id: Annotated[str, types.key(32)] = ""
    # The receipt `read` was added to the outbox together with the message. A page sends it later, and records that in
    # its chats. The default of the column is for terminals of the previous release.
    is_read: Annotated[bool, sa.Boolean(), sa.DefaultClause("1")] = False


inbox = metadata.table_of(
    InboxRow,
    "handset_inbox",
    sa.Index("handset_inbox_by_id", "id", "number", "peer", unique=True),
    key=("fleet", "position"),
)


async def save_shown(connection: AsyncConnection, fleet: str, position: int) -> None:
    """Record that all messages of this fleet up to `position` have been shown."""
    statement = insert_or_update(connection, progress, ("shown",))
    await connection.execute(statement, [{"fleet": fleet, "shown": position, "sent": 0}])


async def save_sent(connection: AsyncConnection, fleet: str, position: int) -> None:
    """Record the last position of a fleet's outbox, so that it is not assigned again when the rows are deleted."""
    statement = insert_or_update(connection, progress, ("sent",))
    await connection.execute(statement, [{"fleet": fleet, "shown": 0, "sent": position}])


async def find(connection: AsyncConnection, fleet: str) -> tuple[int, int, int]:
    """Return the last positions of a fleet's inbox, of its outbox and of its shown messages; 0 for none."""
    row = (
        await connection.execute(
            sa.select(
                sa.select(sa.func.max(inbox.c.position)).where(inbox.c.fleet == fleet).scalar_subquery(),
                sa.select(sa.func.max(outbox.c.position)).where(outbox.c.fleet == fleet).scalar_subquery(),
                sa.select(sa.func.max(sent.c.position)).where(sent.c.fleet == fleet).scalar_subquery(),
                sa.select(progress.c.sent).where(progress.c.fleet == fleet).scalar_subquery(),
                sa.select(progress.c.shown).where(progress.c.fleet == fleet).scalar_subquery(),
            )
        )
    ).one()
    received, *own, shown = (position or 0 for position in row)
    return received, max(own), shown


# Kinds of inbox rows.
TEXT = "text"
ANSWER = "text.answer"  # a text that answers another message; its content is JSON, that of TEXT the words
EMPTY = "null"  # completes a key exchange; never shown
UNREADABLE = "undecryptable"  # its id is kept, so that it is acknowledged permanently
CONTROL = "control"  # message between devices about the keys of a group; never shown
HIDDEN = frozenset({EMPTY, UNREADABLE, CONTROL})  # kinds that are not shown
# Kinds of rows and of chat items that a peer cannot choose. A message of such a type is of the kind `UNKNOWN`.
RESERVED = HIDDEN | {ANSWER, chats.NOTICE}
UNKNOWN = "unknown"

_KNOWN = sa.select(inbox.c.number, inbox.c.peer, inbox.c.id).where(inbox.c.id.in_(any_of("ids")))
_KINDS = sa.select(inbox.c.number, inbox.c.peer, inbox.c.id, inbox.c.kind, inbox.c.received_at).where(
    inbox.c.id.in_(any_of("ids"))
)
_DELETE_UNREADABLE = inbox.delete().where(
    inbox.c.kind == UNREADABLE, any_row_of("keys", inbox.c.id, inbox.c.number, inbox.c.peer)
)


_ADD = inbox.insert()


async def add(connection: AsyncConnection, rows: Sequence[InboxRow]) -> None:
    """Add received messages. Raises `IntegrityError` when a (number, peer, id) exists."""
    await write_instances(connection, _ADD, rows)


async def list_known(connection: AsyncConnection, ids: Sequence[str]) -> set[tuple[str, str, str]]:
    """Return the (number, peer, id) of received messages with these ids."""
    return {(row[0], row[1], row[2]) for row in await select_paged(connection, _KNOWN, "ids", ids)}


async def list_kinds(connection: AsyncConnection, ids: Sequence[str]) -> dict[tuple[str, str, str], tuple[str, int]]:
    """Return kind and receive time of the received messages with these ids, by (number, peer, id)."""
    rows = await select_paged(connection, _KINDS, "ids", ids)
    return {(row[0], row[1], row[2]): (row[3], row[4]) for row in rows}


async def delete_unreadable(connection: AsyncConnection, keys: Sequence[tuple[str, str, str]]) -> None:
    """Delete undecryptable messages, (number, peer, id), so that they can be added in readable form."""
    found = [(id_, number, peer) for number, peer, id_ in keys]
    await execute_paged(connection, _DELETE_UNREADABLE, "keys", found, 333, as_list=row_list)


async def list_recent(connection: AsyncConnection, fleet: str, limit: int) -> list[tuple[str, str, str]]:
    """List the (number, peer, id) of a fleet's last messages, newest first."""
    rows = await connection.execute(
        sa.select(inbox.c.number, inbox.c.peer, inbox.c.id)
        .where(inbox.c.fleet == fleet)
        .order_by(inbox.c.position.desc())
        .limit(limit)
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def list_messages(connection: AsyncConnection, fleet: str, after: int, limit: int) -> list[InboxRow]:
    """List a fleet's messages behind a position, in order."""
    rows = await connection.execute(
        sa.select(inbox).where(inbox.c.fleet == fleet, inbox.c.position > after).order_by(inbox.c.position).limit(limit)
    )
    return [InboxRow(*row) for row in rows]


async def list_of_number(
    connection: AsyncConnection, fleet: str, number: str, *, after: int, limit: int
) -> list[InboxRow]:
    """List the messages of one device behind a position, in order. Reads the fleet's messages behind that position."""
    chosen = sa.select(inbox).where(inbox.c.fleet == fleet, inbox.c.position > after, inbox.c.number == number)
    return [InboxRow(*row) for row in await connection.execute(chosen.order_by(inbox.c.position).limit(limit))]


async def delete_before(connection: AsyncConnection, fleet: str, time: int, shown: int) -> int:
    """Delete messages received before `time` (Unix milliseconds) at positions up to `shown`. Returns the number."""
    result = await connection.execute(
        inbox.delete().where(inbox.c.fleet == fleet, inbox.c.position <= shown, inbox.c.received_at < time)
    )
    return result.rowcount
