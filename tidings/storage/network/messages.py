"""Columns of stored messages that envelopes of mailboxes and messages to groups have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from tidings.storage import types


@dataclasses.dataclass(frozen=True, slots=True)
class StoredMessage:
    """Stored message, whatever its recipient."""

    # Network-wide, increasing in the order of arrival.
    seq: int
    sender: str
    id: str
    # Unix milliseconds of the arrival.
    timestamp: int
    # Unix milliseconds.
    expires_at: int
    body: bytes
    # Ids of the messages that a receipt refers to.
    refs: list[str]
    trace: str = ""
    # Group that the message was sent to or is about; empty for none.
    group: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[str]).decode


def columns() -> list[sa.Column[Any]]:
    """Return the first columns of a table of messages."""
    return [
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("sender", types.key(15), nullable=False),
        sa.Column("id", types.key(64), nullable=False),
        sa.Column("timestamp", types.milliseconds(), nullable=False),
        sa.Column("expires_at", types.milliseconds(), nullable=False),
        sa.Column("body", types.blob(), nullable=False),
        sa.Column("refs", types.long_text(), nullable=False),
        sa.Column("trace", types.key(64), nullable=False),
        sa.Column("group_id", types.key(32), nullable=False),
    ]


def values(message: StoredMessage) -> dict[str, Any]:
    """Return the values of these columns, by name."""
    return {
        "seq": message.seq,
        "sender": message.sender,
        "id": message.id,
        "timestamp": message.timestamp,
        "expires_at": message.expires_at,
        "body": message.body,
        "refs": _encode(message.refs).decode(),
        "trace": message.trace,
        "group_id": message.group,
    }


def read(row: Sequence[Any]) -> tuple[tuple[Any, ...], Sequence[Any]]:
    """Return the fields of a `StoredMessage` in their order, and the other values of the row."""
    seq, sender, id_, timestamp, expires_at, body, refs, trace, group, *rest = row
    return (seq, sender, id_, timestamp, expires_at, body, _decode(refs), trace, group), rest
