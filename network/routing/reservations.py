"""Positions in queues, for envelopes that transactions outside of the router store."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Self

from network.routing.router import Router
from tidings.aio.clock import Clock
from tidings.storage.database import Connection
from tidings.storage.network import mailbox
from tidings.storage.network.group_messages import StoredGroupMessage
from tidings.wire import device


class Notice(NamedTuple):
    """Envelope made by the network itself, stored in the transaction that causes it."""

    kind: str
    sender: str
    recipient: str
    refs: Sequence[str] = ()
    body: bytes = b""
    group: str = ""  # Group that it is about; empty for none.
    id: str = ""  # Stays the same when the transaction is repeated; empty for a new one at each attempt.


@dataclasses.dataclass(slots=True, eq=False)
class Reservations:
    """Reserved positions in queues, held around one transaction by `with`."""

    router: Router
    clock: Clock
    ttl: int  # Seconds.
    # (recipient, hash slot, `seq`)
    reserved: list[tuple[str, int, int]] = dataclasses.field(default_factory=list)
    # Rows that the transaction has certainly stored, by `seq`: attached devices receive them without a read of their
    # mailboxes. Only rows of the attempt that succeeded may be in it.
    stored: dict[int, mailbox.Envelope] = dataclasses.field(default_factory=dict)
    # For copies in memory only: recipient by `seq`, and the messages that the transaction stores.
    live: dict[int, str] = dataclasses.field(default_factory=dict)
    kept: Sequence[StoredGroupMessage] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Release the positions after the transaction, whether it committed or not."""
        for message in self.kept:
            for seq in message.copies.values():
                del self.live[seq]
            self.router.live.hand_over(message)
        for seq, number in self.live.items():
            self.router.live.cancel(number, seq)
        for number, hash_slot, seq in self.reserved:
            self.router.release(number, hash_slot, seq, self.stored.get(seq))

    def reserve(self, recipient: str, hash_slot: int) -> int:
        """Return a `seq` for an envelope that the transaction stores."""
        seq = self.router.reserve(recipient, hash_slot)
        self.reserved.append((recipient, hash_slot, seq))
        return seq

    def may_be_live(self, sender: str, size: int) -> bool:
        """Return whether copies of another message of `size` bytes may be held in memory only."""
        return self.router.live.has_room(sender, size)

    def reserve_live(self, recipient: str) -> int:
        """Return a `seq` for a copy in memory only; 0 when there is no room."""
        seq = self.router.live.reserve(recipient)
        if seq:
            self.live[seq] = recipient
        return seq

    async def store(self, connection: Connection, notices: Sequence[Notice]) -> Sequence[mailbox.Envelope]:
        """Write and return notices, which are delivered when the transaction has committed."""
        now = self.clock.now_ms()
        rows = []
        for notice in notices:
            hash_slot = device.hash_slot_of(notice.sender, notice.kind, notice.group)
            seq = self.reserve(notice.recipient, hash_slot)
            rows.append(
                mailbox.Envelope(
                    seq=seq,
                    recipient=notice.recipient,
                    sender=notice.sender,
                    id=notice.id or f"{notice.kind}.{seq}",
                    kind=notice.kind,
                    timestamp=now,
                    expires_at=now + self.ttl * 1000,
                    body=notice.body,
                    refs=list(notice.refs),
                    group=notice.group,
                    slot=hash_slot,
                )
            )
        await mailbox.insert(connection, rows)
        return rows
