"""History of callbacks: those that the webhook has accepted, and the attempts at each.

A callback is moved here by the statement that ends it: the server copies the row, and its last attempt becomes part of
it (docs/decisions/0069). Earlier attempts, and those with content in their response, are rows of their own, also while
the callback is pending.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

import sqlalchemy as sa

from tidings.storage import types
from tidings.storage.business import callbacks
from tidings.storage.business.tables import metadata
from tidings.storage.database import Connection, any_of, insert_or_update, pages, select_paged
from tidings.storage.rows import write_instances, write_text

ATTEMPTS = 20  # latest attempts that are kept of each callback
RESPONSE_BYTES = 1024  # bytes of a response that are kept


@dataclasses.dataclass(slots=True)
class Attempt:
    """One attempt at posting a callback."""

    account: Annotated[str, types.key(20)]
    # `seq` of the callback.
    seq: Annotated[int, sa.BigInteger]
    # Number of the attempt modulo `ATTEMPTS`: a later attempt takes the place of an earlier one.
    slot: Annotated[int, sa.SmallInteger]
    # Number of the attempt, from 1. It starts again with a replay.
    attempt: int
    # Start of the attempt.
    at: types.UnixMilliseconds
    # Milliseconds until the response or the error.
    took: int
    # HTTP status; None without a response.
    status: Annotated[int | None, sa.SmallInteger]
    # Error in words; empty for none.
    error: Annotated[str, types.text(255)]
    # First bytes of the response's content; sealed in the table. None for no content.
    response: Annotated[bytes | None, types.fixed_bytes(RESPONSE_BYTES + 64)] = dataclasses.field(repr=False)


def attempt(
    callback: callbacks.Callback, number: int, at: int, took: float, status: int | None, *, error: str, response: bytes
) -> Attempt:
    """Return the attempt at a callback.

    number: number of the attempt, from 1
    at: its start, Unix milliseconds
    took: milliseconds
    status: HTTP status; None without a response
    """
    return Attempt(
        callback.account,
        callback.seq,
        number % ATTEMPTS,
        number,
        at,
        int(took),
        status,
        error[:255],
        response[:RESPONSE_BYTES] or None,
    )


attempts = metadata.table_of(Attempt, "callback_attempts", key=("account", "seq", "slot"))


@dataclasses.dataclass(frozen=True, slots=True)
class EndedCallback:
    """Callback that the webhook has accepted. Fields without a comment are as in `callbacks.Callback`."""

    account: Annotated[str, types.key(20)]
    seq: Annotated[int, sa.BigInteger]
    # Shard that posted it.
    shard: int
    subject: Annotated[str, types.key(64)]
    kind: Annotated[str, types.key(20)]
    # Sealed as in `callbacks.Callback`.
    body: bytes = dataclasses.field(repr=False)
    created_at: types.UnixMilliseconds
    request_id: Annotated[str, types.key(64)]
    event: Annotated[str | None, types.key(64)]
    # Peer that it is about; None if unknown.
    recipient: Annotated[str | None, types.key(40)]
    # Number of the last attempt, as in `Attempt`.
    attempt: int
    # Start and duration of the last attempt: Unix milliseconds times `2 ** TOOK_BITS`, plus milliseconds.
    tried: Annotated[int, sa.BigInteger]
    # HTTP status of the last attempt.
    status: Annotated[int, sa.SmallInteger]


table = metadata.table_of(
    EndedCallback,
    "callback_history",
    sa.Index("callback_history_by_peer", "account", "recipient", "seq"),
    sa.Index("callback_history_by_kind", "account", "kind", "seq"),
    sa.Index("callback_history_by_event", "event", mysql_length={"event": 16}),
    key=("account", "seq"),
)

TOOK_BITS = 20  # of `EndedCallback.tried`: 17 minutes
_COPIED = "account, seq, shard, subject, kind, body, created_at, request_id, event, recipient"


async def save_attempts(connection: Connection, found: Sequence[Attempt]) -> None:
    """Save attempts, whose responses are sealed. Each takes the place of an earlier one of its slot."""
    await write_instances(connection, insert_or_update(connection, attempts), found)


async def keep(connection: Connection, last: Mapping[int, Attempt]) -> None:
    """Copy callbacks that are about to be deleted. Those that are missing are left out.

    last: last attempt of each, by `seq`
    """
    if not last:
        return
    # One statement for all, which the server fills from its rows. Only numbers enter the text.
    tried = "".join([f" WHEN {seq} THEN {one.at << TOOK_BITS | min(one.took, _LONGEST)}" for seq, one in last.items()])
    number = "".join([f" WHEN {seq} THEN {one.attempt}" for seq, one in last.items() if one.attempt != 1])
    status = "".join([f" WHEN {seq} THEN {one.status or 0}" for seq, one in last.items() if one.status != 200])
    await write_text(
        connection,
        f"INSERT INTO callback_history ({_COPIED}, attempt, tried, status) SELECT {_COPIED},"  # noqa: S608
        f" {_case(number, 1)}, CASE seq{tried} END, {_case(status, 200)}"
        f" FROM callbacks WHERE seq IN ({','.join(map(str, last))}) {_UNLESS_KNOWN[connection.dialect.name == 'sqlite']}",
        label=f"INSERT INTO callback_history SELECT {_COPIED} FROM callbacks WHERE seq IN (…)",  # noqa: S608
    )


_LONGEST = 2**TOOK_BITS - 1
# A clock that was set back can give a `seq` again. The later callback is then not kept.
_UNLESS_KNOWN = (
    "ON DUPLICATE KEY UPDATE callback_history.seq = callback_history.seq",
    "ON CONFLICT DO NOTHING",
)


def _case(others: str, usual: int) -> str:
    """Return the SQL of a number that depends on `seq`: `usual` except for `others`."""
    return f"CASE seq{others} ELSE {usual} END" if others else str(usual)


async def list_ended(connection: Connection, account: str, seqs: Sequence[int]) -> Sequence[callbacks.Callback]:
    """List those of the given callbacks of an account that have ended, with sealed bodies, as they were at first."""
    columns = (table.c.seq, table.c.shard, table.c.subject, table.c.kind, table.c.body, table.c.created_at)
    query = sa.select(*columns, table.c.request_id, table.c.event, table.c.recipient).where(
        table.c.account == account, table.c.seq.in_(any_of("seqs"))
    )
    return [
        callbacks.Callback(
            row.seq,
            row.shard,
            account,
            row.subject,
            row.kind,
            row.body,
            row.created_at,
            request_id=row.request_id,
            event=row.event or "",
            recipient=row.recipient or "",
        )
        for row in await select_paged(connection, query, "seqs", seqs)
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class CountedPage:
    """Number of consecutive rows."""

    count: int
    last: int  # `seq` of the last one; that after which they were counted if there are none


async def count_page(connection: Connection, account: str, *, after: int, limit: int) -> CountedPage:
    """Count at most `limit` ended callbacks of an account with a `seq` above `after`."""
    page = sa.select(table.c.seq).where(table.c.account == account, table.c.seq > after)
    found = page.order_by(table.c.seq).limit(limit).subquery()
    row = (await connection.execute(sa.select(sa.func.count(), sa.func.max(found.c.seq)))).one()
    return CountedPage(row[0], row[1] or after)


async def delete_page(connection: Connection, account: str, *, until: int, limit: int) -> int:
    """Delete at most `limit` ended callbacks of an account with a `seq` up to `until`, oldest first. Returns the
    number.
    """
    page = sa.select(table.c.seq).where(table.c.account == account, table.c.seq <= until)
    seqs = [row.seq for row in await connection.execute(page.order_by(table.c.seq).limit(limit))]
    if seqs:
        await connection.execute(table.delete().where(table.c.account == account, table.c.seq <= seqs[-1]))
    return len(seqs)


@dataclasses.dataclass(frozen=True, slots=True)
class SweptAttempts:
    """Result of one page of a sweep."""

    deleted: int
    # `seq` after which the next page starts; None after the last page.
    last: int | None


async def sweep_attempts(connection: Connection, account: str, *, after: int, until: int, limit: int) -> SweptAttempts:
    """Check the attempts at the next `limit` callbacks after `after`, up to `until`, and delete those at callbacks that
    are no longer in the queue.
    """
    column = attempts.c
    page = sa.select(column.seq).where(column.account == account, column.seq > after, column.seq <= until).distinct()
    seqs = [row.seq for row in await connection.execute(page.order_by(column.seq).limit(limit))]
    queued = sa.select(callbacks.table.c.seq).where(callbacks.table.c.seq.in_(any_of("seqs")))
    left = {row.seq for row in await select_paged(connection, queued, "seqs", seqs)}
    gone = [seq for seq in seqs if seq not in left]
    delete = attempts.delete().where(column.account == account, column.seq.in_(any_of("seqs")))
    deleted = 0
    for some in pages(gone):
        deleted += (await connection.execute(delete, {"seqs": some})).rowcount
    return SweptAttempts(deleted, seqs[-1] if len(seqs) == limit else None)


async def highest_seq(connection: Connection, account: str) -> int:
    """Return the highest `seq` of an account's ended callbacks, 0 when there are none."""
    query = sa.select(sa.func.max(table.c.seq)).where(table.c.account == account)
    return int((await connection.execute(query)).scalar_one() or 0)
