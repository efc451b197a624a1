"""Rows that belong to a shard, page by page brought to the one that they belong to among another number of shards.

Which one that is follows from whom a row is about alone, so a page may be moved as often as one likes; what is there
already is left as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.business import callbacks, jobs, media_downloads, messages, shard_notes, undecrypted
from tidings.storage.database import any_of, pages

PAGE = 1000

# The shard of whom a row is about: the number of a recipient, or whatever else it is about.
Place = Callable[[str], int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Rows:
    """One kind of row: by what it is found, and whom it is about."""

    key: sa.Column[Any]
    shard: sa.Column[Any]
    about: sa.ColumnElement[str]
    source: sa.FromClause
    start: Any


def _rows(table: sa.Table, key: str, about: sa.ColumnElement[str], source: sa.FromClause, start: Any) -> _Rows:
    return _Rows(table.c[key], table.c.shard, about, source, start)


_CALLBACKS = callbacks.table.outerjoin(messages.table, messages.table.c.id == callbacks.table.c.subject)
_DOWNLOADS = media_downloads.table
# Callbacks of one message go where the message belongs, so that their order stays what it is.
_KINDS: Mapping[str, _Rows] = {
    "jobs": _rows(jobs.table, "id", jobs.table.c.peer, jobs.table, ""),
    "callbacks": _rows(
        callbacks.table, "seq", sa.func.coalesce(messages.table.c.peer, callbacks.table.c.subject), _CALLBACKS, -1
    ),
    "media_downloads": _rows(
        _DOWNLOADS,
        "id",
        sa.case((_DOWNLOADS.c.group_id != "", _DOWNLOADS.c.group_id), else_=_DOWNLOADS.c.sender),
        _DOWNLOADS,
        "",
    ),
    # What is for the owner of the groups stays with the first shard.
    "shard_notes": _rows(
        shard_notes.table,
        "id",
        sa.case((shard_notes.table.c.kind == shard_notes.SEND, shard_notes.table.c.peer), else_=""),
        shard_notes.table,
        "",
    ),
    "undecrypted_messages": _rows(undecrypted.table, "id", undecrypted.table.c.sender, undecrypted.table, ""),
}
KINDS = tuple(_KINDS)


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """A page. last: where the next one begins, `None` after the last; rows: those that changed their shard."""

    last: Any
    rows: int


async def move_page(connection: AsyncConnection, kind: str, place: Place, *, after: Any = None) -> Moved:
    """Move the rows of one of `KINDS` that follow `after` (a `Moved.last`; `None` for the first page)."""
    rows = _KINDS[kind]
    query = (
        sa.select(rows.key, rows.shard, rows.about)
        .select_from(rows.source)
        .where(rows.key > (rows.start if after is None else after))
        .order_by(rows.key)
        .limit(PAGE)
    )
    found = (await connection.execute(query)).all()
    strays: dict[int, list[Any]] = {}
    for key, shard, about in found:
        target = place(about)
        if target != shard:
            strays.setdefault(target, []).append(key)
    table: Any = rows.key.table
    for target, keys in strays.items():
        statement = table.update().where(rows.key.in_(any_of("keys"))).values(shard=target)
        for page in pages(keys):
            await connection.execute(statement, {"keys": page})
    return Moved(found[-1][0] if len(found) == PAGE else None, sum(map(len, strays.values())))
