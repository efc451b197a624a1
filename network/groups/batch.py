"""Effects of one transaction with messages to groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from tidings.storage.network import mailbox
from tidings.storage.network.group_messages import StoredGroupMessage
from tidings.wire import device


@dataclasses.dataclass(slots=True)
class GroupBatch:
    """Effects of one transaction on its messages."""

    # For each message, reason and detail of a refusal, both empty when it is accepted.
    answers: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    # Accepted messages, as (sender, id).
    new: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    # Copies of messages found to have been stored by an earlier attempt or transaction.
    settled: list[mailbox.Envelope] = dataclasses.field(default_factory=list)
    # Copies that are stored in mailboxes.
    rows: list[mailbox.Envelope] = dataclasses.field(default_factory=list)
    # Messages that are stored for copies in memory only.
    kept: list[StoredGroupMessage] = dataclasses.field(default_factory=list)
    # Number of copies that were not made, because their mailboxes had no room.
    dropped: int = 0


@dataclasses.dataclass(slots=True)
class Tries:
    """Attempts of one transaction."""

    # `seq` of messages of earlier transactions that it searches for.
    doubtful: Collection[int]
    # `seq` of messages of earlier attempts of this transaction.
    kept: set[int] = dataclasses.field(default_factory=set)
    # Effects of the latest attempt, which are counted in the usage of mailboxes; `None` before the first.
    batch: GroupBatch | None = None


def make_copy(message: StoredGroupMessage, recipient: str, seq: int) -> mailbox.Envelope:
    """Return the row of the copy for one recipient."""
    return mailbox.Envelope(
        seq,
        message.sender,
        message.id,
        message.timestamp,
        message.expires_at,
        message.body,
        message.refs,
        message.trace,
        message.group,
        recipient=recipient,
        kind=device.GROUP,
        slot=device.GROUP_SLOT,
    )
