"""Content of messages as the network stores them: what an envelope of the mailbox and a message to a group share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from tidings.storage import types


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """Message that is stored, whoever it is for.

    seq:        network-wide, increasing in the order of arrival.
    timestamp:  Unix milliseconds of its arrival.
    expires_at: Unix milliseconds.
    group:      the group that it was sent to or that it is about, empty for none.
    """

    seq: int
    sender: str
    id: str
    timestamp: int
    expires_at: int
    body: bytes
    refs: list[str]
    trace: str = ""
    group: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[str]).decode


def columns() -> list[sa.Column[Any]]:
    """The first columns of a table of messages."""
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


def values(message: Message) -> dict[str, Any]:
    """The values of these columns, by name."""
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
    """The fields of a `Message` in their order, and what the row has besides them."""
    seq, sender, id_, timestamp, expires_at, body, refs, trace, group, *rest = row
    return (seq, sender, id_, timestamp, expires_at, body, _decode(refs), trace, group), rest
