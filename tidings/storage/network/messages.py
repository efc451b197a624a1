"""Fields of stored messages that envelopes of mailboxes and messages to groups have in common."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import sqlalchemy as sa

from tidings.storage import types


@dataclasses.dataclass(frozen=True, slots=True)
class StoredMessage:
    """Stored message, whatever its recipient."""

    # Network-wide, increasing in the order of arrival.
    seq: Annotated[int, sa.BigInteger]
    sender: Annotated[str, types.key(15)]
    id: Annotated[str, types.key(64)]
    # Unix milliseconds of the arrival.
    timestamp: types.UnixMilliseconds
    expires_at: types.UnixMilliseconds
    body: bytes
    # Ids of the messages that a receipt refers to.
    refs: Annotated[list[str], types.json(list[str])]
    trace: Annotated[str, types.key(64)] = ""
    # Group that the message was sent to or is about; empty for none.
    group: Annotated[str, types.key(32), "group_id"] = ""
