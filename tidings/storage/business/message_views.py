"""Lists of messages by account, newest first, and the times of one message. No content is read.

Each page is read from an index. The index by type has an ordered list for each type and `Listing`; a page merges those
that the filter selects. Selections by status, and by recipient and also by type, search some `EXAMINED` messages per
page, so that a page may be short although more follow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from tidings.storage.business import group_messages, jobs, messages
from tidings.storage.business.group_messages import GroupReceipt
from tidings.storage.business.messages import Listing, Status
from tidings.storage.database import Connection, any_of, pages

PAGE = 50  # messages per page
EXAMINED = 2_000  # messages that are searched for a page of those that the filter selects
LISTS = 200  # lists that one query merges

# Ids sort by their time of creation. Ids that were made by others may sort after all of ours.
_AFTER_ALL = "\x7f"


@dataclasses.dataclass(frozen=True, slots=True)
class MessageFilter:
    """Selection of messages. Each field narrows it, unless it is empty, zero or None."""

    # Number, or group id.
    recipient: str = ""
    # Id of the message.
    id: str = ""
    # Type of the message.
    kind: str = ""
    status: Status | None = None
    # First id, and end of the ids, excluded. Ids sort by time: `tidings.wire.ids.bound` makes these from times.
    since_id: str = ""
    until_id: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class MessageView:
    """Message without its content. Times are Unix milliseconds; None for unknown and for steps not reached.

    The time at which the request for the message arrived is part of the id (`tidings.wire.ids.made_at`).
    """

    id: str
    shard: int
    # Recipient, or sender of an inbound message.
    peer: str
    kind: str
    status: Status
    # Time at which the Coreapp began to commit the message; of an inbound one, the time at which it was sent.
    stored_at: int
    request_id: str
    # As in `messages.MessageRow`.
    category: str
    # None for a message that was encrypted when it was accepted.
    encrypted_at: int | None
    sent_at: int | None
    delivered_at: int | None
    # Also the time at which the business marked a recipient's message as read.
    read_at: int | None
    failed_at: int | None
    # Code of the failure; None for none.
    failure: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class MessagePage:
    """Messages, newest first."""

    rows: Sequence[MessageView]
    # Id to pass as `before` for the next page; None after the last page.
    older: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class MessageTimeline:
    """Steps of one message."""

    message: MessageView
    # Whether the message waits to be encrypted; None if it has left the queue.
    is_waiting: bool | None
    # Statuses per participant of a message to a group.
    participants: Sequence[GroupReceipt]


_T = messages.table.c
_COLUMNS = (
    _T.id,
    _T.shard,
    _T.peer,
    _T.kind,
    _T.status,
    _T.created_at,
    _T.request_id,
    _T.category,
    _T.encrypted_at,
    messages.time_of("sent_at"),
    messages.time_of("delivered_at"),
    messages.time_of("read_at"),
    _T.failed_at,
    _T.failure,
)
_ROWS = sa.select(*_COLUMNS).where(_T.account == sa.bindparam("account"), _T.id.in_(any_of("ids")))


def _view(row: Sequence[Any]) -> MessageView:
    message_id, shard, peer, kind, status, *more = row
    return MessageView(message_id, shard, peer, kind, Status(status), *more)


async def list_messages(
    connection: Connection, account: str, choice: MessageFilter, *, before: str = "", limit: int = PAGE
) -> MessagePage:
    """List a page of the messages of an account, newest first.

    before: id after which the page starts, `MessagePage.older` of the previous one; empty for the first page
    """
    since, until = choice.since_id, choice.until_id or _AFTER_ALL
    last = min(before, until) if before else until
    if choice.id:
        named = choice.id if since <= choice.id < last else ""
        found, older = [row for row in await _read(connection, account, [named]) if _matches(row, choice)], None
        return MessagePage(found, older)
    read = _list_of_peer if choice.recipient else _list_of_kinds
    chosen, older = await read(connection, account, choice, since, last, limit)
    return MessagePage(await _read(connection, account, chosen), older)


async def _read(connection: Connection, account: str, chosen: Sequence[str]) -> list[MessageView]:
    """Return the messages with these ids, newest first."""
    rows: Iterable[Any] = await connection.execute(_ROWS, {"account": account, "ids": list(chosen)}) if chosen else ()
    return sorted(map(_view, rows), key=lambda row: row.id, reverse=True)


def _matches(row: MessageView, choice: MessageFilter) -> bool:
    return (
        choice.recipient in ("", row.peer)
        and choice.kind in ("", row.kind)
        and (choice.status is None or choice.status == row.status)
    )


async def _list_of_peer(
    connection: Connection, account: str, choice: MessageFilter, since: str, last: str, limit: int
) -> tuple[list[str], str | None]:
    """Return a page of ids of messages with one recipient, and the id after which the next page starts."""
    query = _newest(
        sa.select(_T.id, _T.kind, _T.status).where(_T.account == account, _T.peer == choice.recipient),
        "messages_by_peer",
        since,
        last,
        EXAMINED if choice.kind or choice.status is not None else limit + 1,
    )
    rows = list(await connection.execute(query))
    return _page(rows, choice, limit, is_cut=len(rows) == EXAMINED)


def _page(rows: Sequence[Any], choice: MessageFilter, limit: int, *, is_cut: bool) -> tuple[list[str], str | None]:
    """Return a page of the ids that the filter selects, and the id after which the next page starts.

    rows: ids with types and statuses, newest first
    is_cut: whether more may follow
    """
    chosen = [
        row.id
        for row in rows
        if choice.kind in ("", row.kind) and (choice.status is None or choice.status == row.status)
    ]
    if len(chosen) > limit:
        return chosen[:limit], chosen[limit - 1]
    return chosen, rows[-1].id if is_cut else None


# Type and `Listing` of each list that is read, with the id before which it is read.
_Lists = Mapping[tuple[str, int], str]


async def _list_of_kinds(
    connection: Connection, account: str, choice: MessageFilter, since: str, last: str, limit: int
) -> tuple[list[str], str | None]:
    """Return a page of ids of messages of one type or all, and the id after which the next page starts."""
    kinds = [choice.kind] if choice.kind else await list_kinds(connection, account)
    if choice.status is not None:
        listing = int(messages.listing_of(choice.status))
        return await _search(
            connection, account, choice, {(kind, listing): last for kind in kinds}, since=since, limit=limit
        )
    lists = {(kind, int(listing)): last for kind in kinds for listing in Listing}
    rows = await _read_lists(connection, account, lists, since=since, size=limit + 1, total=limit + 1)
    return _page(rows[: limit + 1], choice, limit, is_cut=False)


async def _search(
    connection: Connection, account: str, choice: MessageFilter, lists: _Lists, *, since: str, limit: int
) -> tuple[list[str], str | None]:
    """Return a page of ids of the messages in these lists that have the status, and the id as in `_list_of_kinds`.

    Reads a page of each list, then a part of `EXAMINED` messages of each, then more of the two that reach back least.
    """
    ends, wanted, size = dict(lists), list(lists), limit + 1
    rows: list[Any] = []
    while wanted:
        found = await _read_lists(connection, account, {name: ends[name] for name in wanted}, since=since, size=size)
        rows += found
        for name in wanted:
            read = [row.id for row in found if (row.kind, row.listing) == name]
            if len(read) == size:
                ends[name] = read[-1]
            else:
                del ends[name]
        # Older messages may be missing.
        floor = max(ends.values(), default="")
        whole = sorted((row for row in rows if row.id >= floor), key=lambda row: row.id, reverse=True)
        chosen, older = _page(whole, choice, limit, is_cut=False)
        if older is not None:
            return chosen, older
        if not ends or len(whole) >= EXAMINED or len(rows) >= 2 * EXAMINED:
            return chosen, floor or None
        wanted = list(ends) if size == limit + 1 else sorted(ends, key=lambda name: ends[name])[-2:]
        size = max(limit + 2, EXAMINED // len(wanted))
    return [], None


async def _read_lists(
    connection: Connection, account: str, lists: _Lists, *, since: str, size: int, total: int | None = None
) -> list[Any]:
    """Return the newest `size` ids of each list with types, lists and statuses, newest first.

    total: number of messages of all lists that suffice; None for all
    """
    queries = [
        _newest(
            sa.select(_T.id, _T.kind, _T.listing, _T.status).where(
                _T.account == account, _T.kind == kind, _T.listing == listing
            ),
            "messages_by_kind",
            since,
            last,
            size,
        ).subquery()
        for (kind, listing), last in lists.items()
    ]
    found: list[Any] = []
    for some in pages(queries, LISTS):
        union = sa.union_all(*(sa.select(one) for one in some)).subquery()
        found += await connection.execute(sa.select(union).order_by(union.c.id.desc()).limit(total))
    return sorted(found, key=lambda row: row.id, reverse=True)


def _newest(query: sa.Select[Any], index: str, since: str, last: str, limit: int) -> sa.Select[Any]:
    """Complete a query so that it reads the newest ids of its list in an index, from `since` to before `last`."""
    for dialect in ("mysql", "mariadb"):
        # To end early, the server would otherwise read the primary key backwards, whatever the list has.
        query = query.with_hint(messages.table, f"FORCE INDEX ({index})", dialect)
    return query.where(_T.id >= since, _T.id < last).order_by(_T.id.desc()).limit(limit)


async def list_kinds(connection: Connection, account: str) -> list[str]:
    """List the types of an account's messages, with one look-up in an index for each."""
    found: list[str] = []
    while True:
        after = found[-1] if found else ""
        query = sa.select(sa.func.min(_T.kind)).where(_T.account == account, _T.kind > after)
        kind = (await connection.execute(query)).scalar()
        if kind is None:
            return found
        found.append(kind)


async def read_timeline(connection: Connection, account: str, message_id: str) -> MessageTimeline | None:
    """Return the steps of one message of an account; None if there is no such message."""
    found = await _read(connection, account, [message_id])
    if not found:
        return None
    state = (await connection.execute(sa.select(jobs.table.c.state).where(jobs.table.c.id == message_id))).scalar()
    query = sa.select(group_messages.receipts).where(group_messages.receipts.c.message_id == message_id)
    participants = await connection.execute(query.order_by(group_messages.receipts.c.member))
    return MessageTimeline(
        found[0], None if state is None else state == jobs.JobForm.NEW, [GroupReceipt(*row) for row in participants]
    )
