"""Messages and their status. The sealed content of a message to a recipient is kept until it is delivered.

The times of its steps are columns that the statement which raises the status sets (docs/decisions/0069).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import group_messages, jobs
from tidings.storage.business.tables import metadata
from tidings.storage.database import SET_LATER, add_rows, any_of, execute_paged, pages, select_paged
from tidings.storage.rows import write


class Status(enum.IntEnum):
    """Status of a message. It only increases; `READ` and `FAILED` are final."""

    RECEIVED = 0  # inbound message
    ACCEPTED = 1
    SENT = 2
    DELIVERED = 3
    READ = 4
    FAILED = 9
    MARKED_READ = 10  # inbound message that the business has marked as read


class Listing(enum.IntEnum):
    """List of messages in the index `messages_by_kind`. Only a failure moves a message to another one."""

    OUTBOUND = 0  # also messages that releases without lists stored, until `list_again` has read them
    INBOUND = 1
    FAILED = 2


_LISTINGS: Mapping[int, Listing] = {
    Status.RECEIVED: Listing.INBOUND,
    Status.MARKED_READ: Listing.INBOUND,
    Status.FAILED: Listing.FAILED,
}


def listing_of(status: int) -> Listing:
    """Return the list that has the messages of a status."""
    return _LISTINGS.get(status, Listing.OUTBOUND)


@dataclasses.dataclass(slots=True)
class MessageRow:
    """Message in either direction."""

    id: Annotated[str, types.key(64)]
    account: Annotated[str, types.key(20)]
    shard: int
    # Recipient, or sender of an inbound message.
    peer: Annotated[str, types.key(40)]
    # Type of the message.
    kind: Annotated[str, types.key(16)]
    # A `Status`.
    status: Annotated[int, sa.SmallInteger]
    created_at: types.UnixMilliseconds
    request_id: Annotated[str, types.key(64)]
    # Category of the message's template; empty for messages without a template.
    category: Annotated[str, types.key(16), sa.DefaultClause("")] = ""
    # Sealed content for sending the message again; None once it is delivered or has failed.
    kept: bytes | None = dataclasses.field(default=None, repr=False)
    # Text of the business that the message's statuses return; None for none.
    callback_data: Annotated[str | None, types.text(512)] = dataclasses.field(default=None, repr=False)
    # A `Listing`; set when the message is added.
    listing: Annotated[int, sa.SmallInteger, sa.DefaultClause("0")] = int(Listing.OUTBOUND)


def _time(name: str) -> sa.Column[Any]:
    return sa.Column(name, types.milliseconds(), nullable=True, info=SET_LATER)


table = metadata.table_of(
    MessageRow,
    "messages",
    # NULL for a message that was encrypted when it was accepted.
    _time("encrypted_at"),
    # NULL or 0 for steps that the message has not reached, or that it reached while no history was kept. New rows have
    # 0, except on SQLite: a NULL takes no room, so that each time would enlarge the row and pages would be split.
    _time("sent_at"),
    _time("delivered_at"),
    # Also the time at which the business marked a recipient's message as read.
    _time("read_at"),
    _time("failed_at"),
    # Code of the failure; NULL for none.
    sa.Column("failure", sa.Integer, nullable=True, info=SET_LATER),
    sa.Index("messages_by_peer", "account", "peer", "id"),
    sa.Index("messages_by_kind", "account", "kind", "listing", "id"),
    key=("id",),
)


_TO_ADVANCE = table.update().where(table.c.id.in_(any_of("ids")), table.c.status < sa.bindparam("reached"))
_ADVANCE = _TO_ADVANCE.values(status=sa.bindparam("reached"))
_SETTLE = _TO_ADVANCE.values(status=sa.bindparam("reached"), kept=sa.null())
# Statements that raise a message to a status. `_ADVANCE_AT` has those that also set its time.
_ADVANCE_TO = {
    Status.ACCEPTED: _ADVANCE,
    Status.SENT: _ADVANCE,
    Status.FAILED: _SETTLE.values(listing=int(Listing.FAILED)),
}


def time_of(name: str) -> sa.ColumnElement[int]:
    """Return the time in a column, NULL for none."""
    return sa.func.nullif(table.c[name], 0)


def _filled(name: str) -> sa.ColumnElement[int]:
    """Return the time in a column, or the present one if it has none."""
    return sa.func.coalesce(time_of(name), sa.bindparam("at"))


# By status: the statement that raises a message to it and sets its time, and the times of skipped steps.
_ADVANCE_AT = {
    Status.SENT: _ADVANCE.values(sent_at=sa.bindparam("at")),
    Status.DELIVERED: _SETTLE.values(sent_at=_filled("sent_at"), delivered_at=sa.bindparam("at")),
    Status.READ: _SETTLE.values(
        sent_at=_filled("sent_at"), delivered_at=_filled("delivered_at"), read_at=sa.bindparam("at")
    ),
    Status.MARKED_READ: _SETTLE.values(read_at=sa.bindparam("at")),
}
_FAIL = (
    table.update()
    .where(table.c.id.in_(any_of("ids")), table.c.status == int(Status.FAILED))
    .values(failure=sa.bindparam("code"), failed_at=_filled("failed_at"))
)
_ENCRYPT = table.update().where(table.c.id.in_(any_of("ids"))).values(encrypted_at=_filled("encrypted_at"))


async def add(connection: AsyncConnection, messages: Sequence[MessageRow]) -> None:
    """Add new messages. Existing ones stay unchanged."""
    for message in messages:
        message.listing = listing_of(message.status)
    await add_rows(connection, table, sorted(messages, key=attrgetter("id")))


async def advance(connection: AsyncConnection, statuses: Mapping[str, Status], at: int | None = None) -> None:
    """Raise the status of each message to at least the given one; a status never decreases.

    The kept content of messages that are delivered or failed is deleted by the same statement.

    at: time of the statuses, Unix milliseconds; None to store no times
    """
    by_status: dict[Status, list[str]] = {}
    for message_id, status in statuses.items():
        by_status.setdefault(status, []).append(message_id)
    for status in sorted(by_status):
        timed = _ADVANCE_AT.get(status) if at is not None else None
        statement = _ADVANCE_TO.get(status, _SETTLE)
        for page in pages(by_status[status]):
            parameters = {"ids": page, "reached": int(status)}
            if timed is None:
                await write(connection, statement, parameters)
            else:
                await write(connection, timed, {**parameters, "at": at})


async def note_failures(connection: AsyncConnection, failures: Mapping[str, int], at: int) -> None:
    """Store the codes and the time of failed messages, of which some may have no row."""
    by_code: dict[int, list[str]] = {}
    for message_id, code in failures.items():
        by_code.setdefault(code, []).append(message_id)
    for code in sorted(by_code):
        for page in pages(by_code[code]):
            await write(connection, _FAIL, {"ids": page, "code": code, "at": at})


async def note_encrypted(connection: AsyncConnection, ids: Sequence[str], at: int) -> None:
    """Store the time at which messages were encrypted that could not be encrypted when they were accepted."""
    for page in pages(ids):
        await write(connection, _ENCRYPT, {"ids": page, "at": at})


@dataclasses.dataclass(frozen=True, slots=True)
class KeptMessage:
    """Sealed content from which a message can be sent again."""

    id: str
    peer: str
    kept: bytes = dataclasses.field(repr=False)
    request_id: str


_KEPT = sa.select(table.c.id, table.c.peer, table.c.kept, table.c.request_id).where(
    table.c.account == sa.bindparam("account"), table.c.id.in_(any_of("ids")), table.c.kept.is_not(None)
)
_KEEP = table.update().where(table.c.id == sa.bindparam("message"), table.c.status < int(Status.DELIVERED))
_RENAME = table.update().where(table.c.id == sa.bindparam("message"))


async def list_kept(connection: AsyncConnection, account: str, ids: Sequence[str]) -> Sequence[KeptMessage]:
    """List the kept contents of those of the given messages that have one."""
    return [KeptMessage(*row) for row in await select_paged(connection, _KEPT, "ids", ids, account=account)]


async def keep(connection: AsyncConnection, kept: Mapping[str, bytes]) -> None:
    """Replace the kept contents of messages that are not yet delivered."""
    if kept:
        await connection.execute(
            _KEEP.values(kept=sa.bindparam("blob")),
            [{"message": message_id, "blob": blob} for message_id, blob in kept.items()],
        )


async def change_kinds(connection: AsyncConnection, kinds: Mapping[str, str]) -> None:
    """Store the types of messages whose type became known after they were added."""
    if kinds:
        await connection.execute(
            _RENAME.values(kind=sa.bindparam("type")),
            [{"message": message_id, "type": kind} for message_id, kind in kinds.items()],
        )


async def delete_kept(connection: AsyncConnection, *, after: str, before: str, limit: int) -> str | None:
    """Delete the kept contents of up to `limit` messages with ids between `after` and `before`, both excluded.

    Returns the last id of the page; None when there are no more.
    """
    query = sa.select(table.c.id, table.c.kept.is_not(None)).where(table.c.id > after, table.c.id < before)
    rows = list(await connection.execute(query.order_by(table.c.id).limit(limit)))
    old = [row[0] for row in rows if row[1]]
    delete = table.update().where(table.c.id.in_(any_of("ids"))).values(kept=sa.null())
    await execute_paged(connection, delete, "ids", old)
    return rows[-1][0] if len(rows) == limit else None


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """Facts about a message that processing its receipts requires."""

    id: str
    peer: str
    status: int
    kind: str = ""
    request_id: str = ""
    category: str = ""
    # As in `MessageRow`.
    callback_data: Annotated[str | None, types.text(512)] = dataclasses.field(default=None, repr=False)


_PROGRESS = sa.select(
    table.c.id,
    table.c.peer,
    table.c.status,
    table.c.kind,
    table.c.request_id,
    table.c.category,
    table.c.callback_data,
).where(table.c.account == sa.bindparam("account"), table.c.id.in_(any_of("ids")))


async def list_progress(connection: AsyncConnection, account: str, ids: Sequence[str]) -> Sequence[Progress]:
    """Return the progress of those of the given messages that exist."""
    # A new owner of a shard asks for thousands, and serves other shards between two pages.
    rows = await select_paged(connection, _PROGRESS, "ids", ids, size=100, account=account)
    return [Progress(*row) for row in rows]


@dataclasses.dataclass(frozen=True, slots=True)
class FoundMessage:
    """Message that another one refers to."""

    peer: str  # recipient or sender
    kind: str
    created_at: int  # Unix milliseconds


async def find(connection: AsyncConnection, account: str, message_id: str) -> FoundMessage | None:
    """Find a message in either direction; None if there is none."""
    query = sa.select(table.c.peer, table.c.kind, table.c.created_at)
    row = (await connection.execute(query.where(table.c.account == account, table.c.id == message_id))).one_or_none()
    return None if row is None else FoundMessage(*row)


async def find_peer_of_shard(connection: AsyncConnection, account: str, message_id: str) -> str:
    """Find the sender or recipient of a message of a shard other than 0; empty if there is none."""
    query = sa.select(table.c.peer).where(table.c.account == account, table.c.id == message_id, table.c.shard != 0)
    return (await connection.execute(query)).scalar() or ""


async def count_by_status(connection: AsyncConnection, account: str = "") -> Mapping[int, int]:
    """Count a number's messages of each status. Reads the whole table; for tests and reports.

    account: empty for all numbers
    """
    query = sa.select(table.c.status, sa.func.count()).group_by(table.c.status)
    rows = await connection.execute(query.where(table.c.account == account) if account else query)
    return {row[0]: row[1] for row in rows}


@dataclasses.dataclass(frozen=True, slots=True)
class ExpiredPage:
    """Expired messages of one page."""

    ids: Sequence[str]
    # Id after which the next page starts; None after the last page.
    after: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class MisplacedPage:
    """Messages that are not in the list of their status, found in one page."""

    ids: Mapping[Listing, Sequence[str]]
    # Id after which the next page starts; None after the last page.
    after: str | None


_PAGE = (
    sa.select(table.c.id, table.c.status, table.c.created_at)
    .where(table.c.id > sa.bindparam("after"))
    .order_by(table.c.id)
    .limit(sa.bindparam("page"))
    .subquery()
)
_END_OF_PAGE = sa.select(sa.func.count(), sa.func.max(_PAGE.c.id)).select_from(_PAGE)
_EXPIRED = sa.select(_PAGE.c.id).where(
    (_PAGE.c.status.in_([Status.READ, Status.FAILED]) & (_PAGE.c.created_at < sa.bindparam("final_before")))
    | (
        _PAGE.c.status.in_([Status.DELIVERED, Status.RECEIVED, Status.MARKED_READ])
        & (_PAGE.c.created_at < sa.bindparam("settled_before"))
    )
)


async def find_expired(
    connection: AsyncConnection, *, after: str, final_before: int, settled_before: int, limit: int
) -> ExpiredPage:
    """Find those of the `limit` messages after the id `after` that have expired.

    Messages of all other statuses never do, such as those on their way.

    final_before: read and failed messages made before this expire, Unix milliseconds
    settled_before: delivered and inbound messages made before this expire, Unix milliseconds
    """
    page = {"after": after, "page": limit}
    count, last = (await connection.execute(_END_OF_PAGE, page)).one()
    times = {"final_before": final_before, "settled_before": settled_before}
    rows = await connection.execute(_EXPIRED, {**page, **times})
    return ExpiredPage([row[0] for row in rows], last if count == limit else None)


async def delete(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Delete messages, with their receipts in groups."""
    await execute_paged(connection, table.delete().where(table.c.id.in_(any_of("ids"))), "ids", ids)
    await group_messages.delete_receipts(connection, ids)


async def find_misplaced(connection: AsyncConnection, *, after: str, limit: int) -> MisplacedPage:
    """Find those of the `limit` messages after the id `after` that a release without lists stored or failed."""
    query = sa.select(table.c.id, table.c.status, table.c.listing).where(table.c.id > after)
    rows = list(await connection.execute(query.order_by(table.c.id).limit(limit)))
    ids = {
        listing: [row.id for row in rows if row.listing != listing and listing_of(row.status) == listing]
        for listing in (Listing.INBOUND, Listing.FAILED)
    }
    return MisplacedPage(ids, rows[-1].id if len(rows) == limit else None)


async def move(connection: AsyncConnection, listing: Listing, ids: Sequence[str]) -> None:
    """Move messages to a list. They never leave that of received and of failed messages."""
    moved = table.update().where(table.c.id.in_(any_of("ids"))).values(listing=int(listing))
    await execute_paged(connection, moved, "ids", ids)


async def delete_unqueued(connection: AsyncConnection, shard: int, limit: int) -> int:
    """Delete at most `limit` messages of a shard that have no job, whatever their status. Returns their number."""
    queued = sa.exists().where(jobs.table.c.id == table.c.id)
    query = sa.select(table.c.id).where(table.c.shard == shard, ~queued).limit(limit)
    ids = [row[0] for row in await connection.execute(query)]
    await delete(connection, ids)
    return len(ids)


async def count_by_kind(connection: AsyncConnection, account: str = "") -> Mapping[str, int]:
    """Count a number's messages of each type. Reads the whole table.

    account: empty for all numbers
    """
    query = sa.select(table.c.kind, sa.func.count()).group_by(table.c.kind)
    rows = await connection.execute(query.where(table.c.account == account) if account else query)
    return {row[0]: row[1] for row in rows}
