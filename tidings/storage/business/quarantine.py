"""Items that ended a process or a shard while they were handled, and the number of such attempts.

An item with `MAX_ATTEMPTS` attempts is quarantined: it is not handled again until an operator releases it.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business import jobs
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, pages, save_rows, select_paged

# Attempts after which an item is quarantined.
MAX_ATTEMPTS = 3
# Maximum length of `last_error`, characters.
MAX_ERROR = 255
_MAX_ID = 64


class ItemKind(enum.StrEnum):
    """Kind of an item that can be quarantined."""

    JOB = "job"  # message to send; its row stays in the job queue
    DELIVERY = "delivery"  # envelope from the network; kept in `body` once it is quarantined
    CALLBACK = "callback"  # callback to post, named by its `seq`; quarantined ones become dead letters


class Item(NamedTuple):
    """Kind and id of an item, which name it."""

    kind: str
    id: str


def name(kind: str, item_id: str) -> Item:
    """Return the name of an item. An id that the table cannot hold is replaced by its hash."""
    if len(item_id) > _MAX_ID or not item_id.isascii() or not item_id.isprintable():
        item_id = hashlib.sha256(item_id.encode(errors="surrogatepass")).hexdigest()
    return Item(kind, item_id)


@dataclasses.dataclass(frozen=True, slots=True)
class Suspect:
    """Item whose handling has failed, and its number of attempts."""

    kind: Annotated[str, types.key(16)]
    id: Annotated[str, types.key(64)]
    # Sender of a quarantined delivery; empty otherwise. There is no shard column, so that items move with their peer.
    peer: Annotated[str, types.key(40), sa.DefaultClause("")]
    attempts: int
    last_error: Annotated[str, types.text(MAX_ERROR)]  # our own description of the last attempt's end
    tried_at: types.UnixMilliseconds  # end of the last attempt, Unix milliseconds
    body: bytes | None = None  # encoded delivery; None for other items and before the quarantine
    # Number that received a quarantined delivery; None otherwise, and in rows from before there were several.
    account: Annotated[str | None, types.key(20)] = None

    @property
    def item(self) -> Item:
        return Item(self.kind, self.id)

    @property
    def is_quarantined(self) -> bool:
        return self.attempts >= MAX_ATTEMPTS


table = metadata.table_of(Suspect, "quarantine", key=("kind", "id"))


_COLUMNS = table.c
_FIND_DELIVERIES = sa.select(table).where(_COLUMNS.kind == ItemKind.DELIVERY, _COLUMNS.id.in_(any_of("ids")))


async def find(connection: AsyncConnection, items: Collection[Item]) -> Sequence[Suspect]:
    """Return those of the items that are in the table."""
    found: list[Suspect] = []
    for kind in {item.kind for item in items}:
        for page in pages([item.id for item in items if item.kind == kind]):
            query = sa.select(table).where(_COLUMNS.kind == kind, _COLUMNS.id.in_(page))
            found += [Suspect(*row) for row in await connection.execute(query)]
    return found


async def save(connection: AsyncConnection, suspects: Sequence[Suspect]) -> None:
    """Write suspects; rows of the same items are replaced."""
    for page in pages(suspects):
        await save_rows(connection, table, page)


async def list_suspects(connection: AsyncConnection, *, limit: int) -> Sequence[Suspect]:
    """List the first `limit` items, without bodies."""
    columns = [column for column in _COLUMNS if column.name not in ("body", "account")]
    query = sa.select(*columns).order_by(_COLUMNS.kind, _COLUMNS.id).limit(limit)
    return [Suspect(*row) for row in await connection.execute(query)]


async def list_kept(connection: AsyncConnection) -> Sequence[tuple[str, str | None, str]]:
    """List id, receiving number and sender of all quarantined deliveries that are kept here."""
    query = sa.select(_COLUMNS.id, _COLUMNS.account, _COLUMNS.peer).where(
        _COLUMNS.body.is_not(None), _COLUMNS.attempts >= MAX_ATTEMPTS
    )
    return [(item_id, account, peer) for item_id, account, peer in await connection.execute(query)]


async def list_released(
    connection: AsyncConnection, *, chosen: Callable[[str | None, str], bool], limit: int
) -> Sequence[Suspect]:
    """List the first `limit` chosen deliveries that were quarantined and then released.

    chosen: called with the receiving number and the sender
    """
    is_released = (_COLUMNS.kind == ItemKind.DELIVERY, _COLUMNS.body.is_not(None), _COLUMNS.attempts < MAX_ATTEMPTS)
    names = sa.select(_COLUMNS.id, _COLUMNS.account, _COLUMNS.peer).where(*is_released).order_by(_COLUMNS.id)
    # Without bodies: deliveries of other shards may be many.
    ids = [item_id for item_id, account, peer in await connection.execute(names) if chosen(account, peer)]
    rows = await select_paged(connection, _FIND_DELIVERIES, "ids", ids[:limit])
    return sorted((Suspect(*row) for row in rows), key=lambda suspect: suspect.id)


async def release(connection: AsyncConnection, items: Collection[Item]) -> int:
    """Let quarantined items be tried again, from zero attempts. Returns their number."""
    # Deliveries are kept from now on: their shards may be opened much later.
    released, now = 0, await database_clock.read(connection)
    for suspect in await find(connection, items):
        if suspect.is_quarantined:
            await save(connection, [dataclasses.replace(suspect, attempts=0, tried_at=now)])
            released += 1
    return released


async def delete(connection: AsyncConnection, items: Sequence[Item]) -> None:
    """Delete the rows of these items."""
    for kind in {item.kind for item in items}:
        for page in pages([item.id for item in items if item.kind == kind]):
            await connection.execute(table.delete().where(_COLUMNS.kind == kind, _COLUMNS.id.in_(page)))


async def delete_strays(connection: AsyncConnection, before: int, limit: int) -> int:
    """Delete items that were last tried before `before` (Unix milliseconds) and have nothing left to quarantine, at
    most `limit`. Returns the number deleted.

    These are items with fewer than `MAX_ATTEMPTS` attempts and no kept delivery, and jobs that have left the queue.
    """
    query: sa.Select[Any] = (
        sa.select(_COLUMNS.kind, _COLUMNS.id)
        .outerjoin(jobs.table, jobs.table.c.id == _COLUMNS.id)
        .where(
            _COLUMNS.tried_at < before,
            _COLUMNS.body.is_(None),
            sa.or_(
                _COLUMNS.attempts < MAX_ATTEMPTS,
                sa.and_(_COLUMNS.kind == ItemKind.JOB, jobs.table.c.id.is_(None)),
            ),
        )
        .limit(limit)
    )
    return await _delete(connection, query)


async def delete_older(connection: AsyncConnection, before: int, limit: int) -> int:
    """Delete deliveries and callbacks that were last tried before `before` (Unix milliseconds), at most `limit`.
    Returns the number deleted.
    """
    query = (
        sa.select(_COLUMNS.kind, _COLUMNS.id)
        .where(_COLUMNS.tried_at < before, _COLUMNS.kind != ItemKind.JOB)
        .limit(limit)
    )
    return await _delete(connection, query)


async def _delete(connection: AsyncConnection, query: sa.Select[Any]) -> int:
    found = [Item(*row) for row in await connection.execute(query)]
    await delete(connection, found)
    return len(found)
