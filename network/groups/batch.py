"""What one transaction does with messages to groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from tidings.storage.network import mailbox
from tidings.storage.network.group_messages import GroupMessage
from tidings.wire import device


@dataclasses.dataclass(slots=True)
class Batch:
    """What one transaction does with its messages.

    answers: of each, the reason to refuse it and a detail for people, both empty when it is accepted.
    new:     those that are taken, as (sender, id).
    settled: copies of messages that were kept, as it turns out, by an earlier try or transaction.
    rows:    copies that are stored; kept: the messages of those that are only in memory.
    dropped: copies that were not made for want of room.
    """

    answers: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    new: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    settled: list[mailbox.Envelope] = dataclasses.field(default_factory=list)
    rows: list[mailbox.Envelope] = dataclasses.field(default_factory=list)
    kept: list[GroupMessage] = dataclasses.field(default_factory=list)
    dropped: int = 0


@dataclasses.dataclass(slots=True)
class Tries:
    """Tries of one transaction.

    doubtful: messages of earlier transactions that it looks for, by `seq`; kept: the same of earlier tries.
    batch:    what the latest try does, which is counted in the usage of mailboxes.
    """

    doubtful: Collection[int]
    kept: set[int] = dataclasses.field(default_factory=set)
    batch: Batch | None = None


def make_copy(message: GroupMessage, recipient: str, seq: int) -> mailbox.Envelope:
    """The copy for one reader, as it is stored."""
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
