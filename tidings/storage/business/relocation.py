"""Page-by-page move of rows to their shards under another number of shards.

The shard depends only on the recipient or other subject of the row, so a page may be moved any number of times. Rows
that are already in their shard are left unchanged. Rows of other numbers are not touched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.business import (
    callbacks,
    cross_shard_messages,
    jobs,
    media_downloads,
    messages,
    shards,
    undecrypted,
)
from tidings.storage.database import any_of, pages

PAGE = 1000

# Returns the shard of a row's subject: the number of a recipient, or another string.
Place = Callable[[str], int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Rows:
    """One kind of row."""

    # Primary key, by which rows are paged.
    key: sa.Column[Any]
    shard: sa.Column[Any]
    # Subject, which determines the shard.
    about: sa.ColumnElement[str]
    # Tables that the subject is read from.
    source: sa.FromClause
    # Value below every key.
    start: Any


def _rows(table: sa.Table, key: str, about: sa.ColumnElement[str], source: sa.FromClause, start: Any) -> _Rows:
    return _Rows(table.c[key], table.c.shard, about, source, start)


_CALLBACKS = callbacks.table.outerjoin(messages.table, messages.table.c.id == callbacks.MESSAGE_ID)
_DOWNLOADS = media_downloads.table
# The callbacks of a message go to the message's shard, so that their order is kept.
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
    # Cross-shard messages for the owner of the groups stay with shard 0.
    "shard_notes": _rows(
        cross_shard_messages.table,
        "id",
        sa.case(
            (cross_shard_messages.table.c.kind == cross_shard_messages.SEND, cross_shard_messages.table.c.peer),
            else_="",
        ),
        cross_shard_messages.table,
        "",
    ),
    "undecrypted_messages": _rows(undecrypted.table, "id", undecrypted.table.c.sender, undecrypted.table, ""),
}
KINDS = tuple(_KINDS)


@dataclasses.dataclass(frozen=True, slots=True)
class MovedPage:
    """Result of moving one page."""

    # Key after which the next page starts; None after the last page.
    last: Any
    # Number of rows that changed their shard.
    rows: int


async def move_page(
    connection: AsyncConnection, kind: str, place: Place, *, after: Any = None, block: int = 0
) -> MovedPage:
    """Move the page of rows of one of `KINDS` after `after` (a `MovedPage.last`; None for the first page).

    block: shard block of the number whose rows are moved
    """
    rows = _KINDS[kind]
    query = (
        sa.select(rows.key, rows.shard, rows.about)
        .select_from(rows.source)
        .where(rows.key > (rows.start if after is None else after), shards.of_block(block, rows.shard))
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
    return MovedPage(found[-1][0] if len(found) == PAGE else None, sum(map(len, strays.values())))
