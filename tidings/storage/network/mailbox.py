"""Envelopes that wait on the network for their recipient's device."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, delete_listed, insert_or_ignore
from tidings.storage.network.tables import metadata

# Rows in one IN (…).
CHUNK = 1000

table = sa.Table(
    "envelopes",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("recipient", types.key(15), nullable=False),
    sa.Column("sender", types.key(15), nullable=False),
    sa.Column("id", types.key(64), nullable=False),
    sa.Column("kind", types.key(16), nullable=False),
    sa.Column("timestamp", types.milliseconds(), nullable=False),
    sa.Column("expires_at", types.milliseconds(), nullable=False),
    sa.Column("body", types.blob(), nullable=False),
    sa.Column("refs", types.long_text(), nullable=False),
    sa.Column("trace", types.key(64), nullable=False),
    sa.Column("group_id", types.key(32), nullable=False),
    sa.Index("envelopes_by_recipient", "recipient", "seq"),
    sa.Index("envelopes_by_expiry", "expires_at", "seq"),
    sa.Index("envelopes_by_copy", "sender", "id", "recipient", unique=True),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Envelope:
    """One envelope as it waits.

    seq:        network-wide, increasing in the order of arrival.
    timestamp:  Unix milliseconds of its arrival.
    expires_at: Unix milliseconds.
    group:      the group that it was sent to or that it is about, empty for none.
    """

    seq: int
    recipient: str
    sender: str
    id: str
    kind: str
    timestamp: int
    expires_at: int
    body: bytes
    refs: list[str]
    trace: str = ""
    group: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[str]).decode


def _envelope(row: Sequence[Any]) -> Envelope:
    seq, recipient, sender, id_, kind, timestamp, expires_at, body, refs, trace, group = row
    return Envelope(seq, recipient, sender, id_, kind, timestamp, expires_at, body, _decode(refs), trace, group)


async def insert(connection: AsyncConnection, envelopes: Sequence[Envelope]) -> None:
    """Store envelopes; one whose (sender, id, recipient) is there already is left as it is."""
    if envelopes:
        await connection.execute(
            insert_or_ignore(connection, table),
            [
                {
                    "seq": envelope.seq,
                    "recipient": envelope.recipient,
                    "sender": envelope.sender,
                    "id": envelope.id,
                    "kind": envelope.kind,
                    "timestamp": envelope.timestamp,
                    "expires_at": envelope.expires_at,
                    "body": envelope.body,
                    "refs": _encode(envelope.refs).decode(),
                    "trace": envelope.trace,
                    "group_id": envelope.group,
                }
                for envelope in envelopes
            ],
        )


_DELETE = table.delete().where(table.c.seq.in_(any_of("seqs")))


async def delete(connection: AsyncConnection, seqs: Sequence[int]) -> None:
    """Remove envelopes; those that are gone already are no matter."""
    await delete_listed(connection, _DELETE, "seqs", seqs)


async def list_page(
    connection: AsyncConnection, recipient: str, *, after: int, now: int, limit: int
) -> Sequence[Envelope]:
    """A recipient's envelopes with `seq` over `after` that have not expired, in order."""
    rows = await connection.execute(
        sa.select(table)
        .where((table.c.recipient == recipient) & (table.c.seq > after) & (table.c.expires_at > now))
        .order_by(table.c.seq)
        .limit(limit)
    )
    return [_envelope(row) for row in rows]


async def list_recipients(connection: AsyncConnection, numbers: Sequence[str]) -> set[str]:
    """Those of the numbers that have envelopes waiting."""
    found: set[str] = set()
    for start in range(0, len(numbers), CHUNK):
        rows = await connection.execute(
            sa.select(table.c.recipient).where(table.c.recipient.in_(numbers[start : start + CHUNK])).distinct()
        )
        found.update(rows.scalars())
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
