"""Envelopes that wait on the network for their recipient's device."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, delete_listed, insert_or_ignore, pages
from tidings.storage.network import messages
from tidings.storage.network.messages import Message
from tidings.storage.network.tables import metadata
from tidings.storage.rows import write_rows

# Rows in one IN (…).
CHUNK = 1000
# Bytes that an envelope counts for beside its body: about what the rest of its frame takes, ...
_FRAME = 256
# ... and each character of `refs`, of which there may be 64,000: it takes up to 6 in JSON.
_REF_CHARACTER = 4

table = sa.Table(
    "envelopes",
    metadata,
    *messages.columns(),
    sa.Column("recipient", types.key(15), nullable=False),
    sa.Column("kind", types.key(16), nullable=False),
    sa.Column("slot", sa.SmallInteger, nullable=False),
    sa.Index("envelopes_by_recipient", "recipient", "seq"),
    sa.Index("envelopes_by_slot", "recipient", "slot", "seq"),
    sa.Index("envelopes_by_expiry", "expires_at", "seq"),
    sa.Index("envelopes_by_copy", "sender", "id", "recipient", unique=True),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Envelope(Message):
    """One envelope as it waits. slot: which of 32 parts of the mailbox it belongs to."""

    recipient: str
    kind: str
    slot: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in one mailbox of one sender's. size: bytes, as by `size_of`."""

    sender: str
    envelopes: int
    size: int


def size_of(body: bytes, refs: Sequence[str]) -> int:
    """Bytes that an envelope counts for: over half of those that it takes on any transport."""
    size = _FRAME + len(body)
    return size + _REF_CHARACTER * (len(refs) + sum(map(len, refs))) if refs else size


def _envelope(row: Sequence[Any]) -> Envelope:
    fields, (recipient, kind, slot) = messages.read(row)
    return Envelope(*fields, recipient=recipient, kind=kind, slot=slot)


async def insert(connection: AsyncConnection, envelopes: Sequence[Envelope]) -> None:
    """Store envelopes; one whose (sender, id, recipient) is there already is left as it is."""
    if envelopes:
        await write_rows(
            connection,
            insert_or_ignore(connection, table),
            [
                {
                    **messages.values(envelope),
                    "recipient": envelope.recipient,
                    "kind": envelope.kind,
                    "slot": envelope.slot,
                }
                for envelope in envelopes
            ],
        )


_DELETE = table.delete().where(table.c.seq.in_(any_of("seqs")))


async def delete(connection: AsyncConnection, seqs: Sequence[int]) -> None:
    """Remove envelopes; those that are gone already are no matter."""
    await delete_listed(connection, _DELETE, "seqs", seqs)


async def list_page(
    connection: AsyncConnection,
    recipient: str,
    *,
    after: int,
    now: int,
    limit: int,
    slots: Sequence[int] | None = None,
) -> Sequence[Envelope]:
    """A recipient's envelopes with `seq` over `after` that have not expired, in order; of these slots, or of all.

    Of some slots those that have expired are among them: looking for others would mean reading all of the rows.
    """
    waiting = (table.c.recipient == recipient) & (table.c.seq > after)
    if slots is None:
        query = sa.select(table).where(waiting, table.c.expires_at > now)
    else:
        # However much there is of the other slots, none of it is read; and of these only the index, but for the page.
        each = [
            sa.select(table.c.seq).where(waiting, table.c.slot == slot).order_by(table.c.seq).limit(limit).subquery()
            for slot in slots
        ]
        first = sa.union_all(*(sa.select(of_slot.c.seq) for of_slot in each)).subquery()
        page = sa.select(first.c.seq).order_by(first.c.seq).limit(limit).subquery()
        query = sa.select(table).join(page, page.c.seq == table.c.seq)
    rows = await connection.execute(query.order_by(table.c.seq).limit(limit))
    return [_envelope(row) for row in rows]


_RECIPIENTS = sa.select(table.c.recipient).where(table.c.recipient.in_(any_of("recipients"))).distinct()


async def list_recipients(connection: AsyncConnection, numbers: Sequence[str]) -> set[str]:
    """Those of the numbers that have envelopes waiting."""
    found: set[str] = set()
    for page in pages(numbers, CHUNK):
        rows = await connection.execute(_RECIPIENTS, {"recipients": page})
        found.update(rows.scalars())
    return found


# In JSON `refs` has two characters more than none for each id, and two for the list.
_SIZE = _FRAME + sa.func.length(table.c.body) + _REF_CHARACTER * (sa.func.length(table.c.refs) - 2)
_WAITING = (
    sa.select(table.c.recipient, table.c.sender, sa.func.count(), sa.func.sum(_SIZE))
    .where(table.c.recipient.in_(any_of("recipients")), table.c.kind.not_in(any_of("notices")))
    .group_by(table.c.recipient, table.c.sender)
)


async def list_waiting(
    connection: AsyncConnection, recipients: Sequence[str], *, notices: Sequence[str]
) -> dict[str, list[Waiting]]:
    """What waits for each of these, by sender, without envelopes of the kinds `notices`; who has nothing is left out.

    The size of receipts is a little over that of `size_of`.
    """
    found: dict[str, list[Waiting]] = {}
    for page in pages(recipients, CHUNK):
        for recipient, sender, envelopes, size in await connection.execute(
            _WAITING, {"recipients": list(page), "notices": list(notices)}
        ):
            found.setdefault(recipient, []).append(Waiting(sender, envelopes, int(size)))
    return found


async def last_seq(connection: AsyncConnection) -> int:
    """The highest `seq` that is stored, 0 when nothing is."""
    return int((await connection.execute(sa.select(sa.func.max(table.c.seq)))).scalar() or 0)


async def list_expired(
    connection: AsyncConnection, *, now: int, after: tuple[int, int], limit: int
) -> Sequence[Envelope]:
    """Envelopes that expired at `now` or before, by (expires_at, seq), from `after` on; locked until the transaction
    ends."""
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
    """Has any envelope expired at `now` or before?"""
    query = sa.select(table.c.seq).where(table.c.expires_at <= now).limit(1)
    return (await connection.execute(query)).first() is not None
