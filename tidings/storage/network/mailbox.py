"""Envelopes stored on the network for the device of their recipient."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import add_rows, any_of, delete_listed, select_paged
from tidings.storage.network.messages import StoredMessage
from tidings.storage.network.tables import metadata

# Maximum number of values in one `IN (…)`.
CHUNK = 1000
# Bytes that count for an envelope in addition to its body: about the size of the rest of its frame.
_FRAME = 256
# Bytes that count for each character of `refs`, of which there may be 64,000. A character takes up to 6 bytes in JSON.
_REF_CHARACTER = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Envelope(StoredMessage):
    """Stored envelope."""

    recipient: Annotated[str, types.key(15)]
    kind: Annotated[str, types.key(16)]
    # Hash slot of the envelope, from 0 to 31.
    slot: Annotated[int, sa.SmallInteger] = 0


table = metadata.table_of(
    Envelope,
    "envelopes",
    sa.Index("envelopes_by_recipient", "recipient", "seq"),
    sa.Index("envelopes_by_slot", "recipient", "slot", "seq"),
    sa.Index("envelopes_by_expiry", "expires_at", "seq"),
    sa.Index("envelopes_by_copy", "sender", "id", "recipient", unique=True),
    key=("seq",),
)


@dataclasses.dataclass(frozen=True, slots=True)
class WaitingEnvelopes:
    """Stored envelopes of one sender in one mailbox."""

    sender: str
    # Number of envelopes.
    envelopes: int
    # Bytes as counted by `size_of`.
    size: int


def size_of(body: bytes, refs: Sequence[str]) -> int:
    """Return the bytes that count for an envelope: more than half of its size on any transport."""
    size = _FRAME + len(body)
    return size + _REF_CHARACTER * (len(refs) + sum(map(len, refs))) if refs else size


def _envelope(row: Sequence[Any]) -> Envelope:
    *fields, recipient, kind, slot = row
    return Envelope(*fields, recipient=recipient, kind=kind, slot=slot)


async def insert(connection: AsyncConnection, envelopes: Sequence[Envelope]) -> None:
    """Store envelopes. If (sender, id, recipient) exists, that envelope stays unchanged."""
    await add_rows(connection, table, envelopes)


_DELETE = table.delete().where(table.c.seq.in_(any_of("seqs")))


async def delete(connection: AsyncConnection, seqs: Sequence[int]) -> None:
    """Delete envelopes. Those that do not exist are ignored."""
    await delete_listed(connection, _DELETE, "seqs", seqs)


async def list_page(
    connection: AsyncConnection,
    recipient: str,
    *,
    after: int,
    now: int,
    limit: int,
    hash_slots: Sequence[int] | None = None,
) -> Sequence[Envelope]:
    """List a recipient's envelopes with a `seq` above `after`, in order, of the given hash slots or of all.

    Expired envelopes are left out if `hash_slots` is None. They are included otherwise, since leaving them out would
    require reading all rows.
    """
    waiting = (table.c.recipient == recipient) & (table.c.seq > after)
    if hash_slots is None:
        query = sa.select(table).where(waiting, table.c.expires_at > now)
    else:
        # Rows of other hash slots are never read. Of the given ones only the index is read, except for the page itself.
        each = [
            sa.select(table.c.seq)
            .where(waiting, table.c.slot == hash_slot)
            .order_by(table.c.seq)
            .limit(limit)
            .subquery()
            for hash_slot in hash_slots
        ]
        first = sa.union_all(*(sa.select(of_slot.c.seq) for of_slot in each)).subquery()
        page = sa.select(first.c.seq).order_by(first.c.seq).limit(limit).subquery()
        query = sa.select(table).join(page, page.c.seq == table.c.seq)
    rows = await connection.execute(query.order_by(table.c.seq).limit(limit))
    return [_envelope(row) for row in rows]


_RECIPIENTS = sa.select(table.c.recipient).where(table.c.recipient.in_(any_of("recipients"))).distinct()


async def list_recipients(connection: AsyncConnection, numbers: Sequence[str]) -> set[str]:
    """Return those of the given numbers that have envelopes stored."""
    return {row.recipient for row in await select_paged(connection, _RECIPIENTS, "recipients", numbers, CHUNK)}


_FILLED = sa.select(table.c.recipient).distinct()


async def list_filled(connection: AsyncConnection, most: int) -> set[str]:
    """Return the numbers that have envelopes stored, at most `most` of them."""
    return {row.recipient for row in await connection.execute(_FILLED.limit(most))}


# In JSON, `refs` has two extra characters per id and two for the list.
_SIZE = _FRAME + sa.func.length(table.c.body) + _REF_CHARACTER * (sa.func.length(table.c.refs) - 2)
_WAITING = (
    sa.select(table.c.recipient, table.c.sender, sa.func.count(), sa.func.sum(_SIZE))
    .where(table.c.recipient.in_(any_of("recipients")), table.c.kind.not_in(any_of("notices")))
    .group_by(table.c.recipient, table.c.sender)
)


async def list_waiting(
    connection: AsyncConnection, recipients: Sequence[str], *, notices: Sequence[str]
) -> dict[str, list[WaitingEnvelopes]]:
    """Return the stored envelopes of each recipient by sender, without envelopes of the kinds `notices`.

    Recipients without envelopes are left out. The size of receipts is slightly more than that of `size_of`.
    """
    found: dict[str, list[WaitingEnvelopes]] = {}
    rows = await select_paged(connection, _WAITING, "recipients", recipients, CHUNK, notices=list(notices))
    for recipient, sender, envelopes, size in rows:
        found.setdefault(recipient, []).append(WaitingEnvelopes(sender, envelopes, int(size)))
    return found


async def last_seq(connection: AsyncConnection) -> int:
    """Return the highest stored `seq`, 0 for none."""
    return int((await connection.execute(sa.select(sa.func.max(table.c.seq)))).scalar() or 0)


async def list_expired(
    connection: AsyncConnection, *, now: int, after: tuple[int, int], limit: int
) -> Sequence[Envelope]:
    """List envelopes that expired at `now` or before, by (expires_at, seq), starting after `after`.

    They are locked until the transaction ends.
    """
    expires_at, seq = after
    rows = await connection.execute(
        sa.select(table)
        .where(
            (table.c.expires_at <= now)
            & ((table.c.expires_at > expires_at) | ((table.c.expires_at == expires_at) & (table.c.seq > seq)))
        )
        .order_by(table.c.expires_at, table.c.seq)
        .limit(limit)
        .with_for_update()
    )
    return [_envelope(row) for row in rows]


async def has_expired(connection: AsyncConnection, now: int) -> bool:
    """Return whether any envelope expired at `now` or before."""
    query = sa.select(table.c.seq).where(table.c.expires_at <= now).limit(1)
    return (await connection.execute(query)).first() is not None
