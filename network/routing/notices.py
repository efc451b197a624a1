"""Envelopes made by the network itself, stored in the transaction that causes them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from network.routing.router import Router
from tidings.aio.clock import Clock
from tidings.storage.database import Connection
from tidings.storage.network import mailbox
from tidings.storage.network.group_messages import StoredGroupMessage
from tidings.wire import device


class Notice(NamedTuple):
    """Envelope to be made."""

    kind: str
    sender: str
    recipient: str
    refs: Sequence[str] = ()
    body: bytes = b""
    group: str = ""  # Group that it is about; empty for none.


class Reservations:
    """Reserved positions in queues, held for one transaction."""

    def __init__(self, router: Router, clock: Clock, ttl: int) -> None:
        self._router = router
        self._clock = clock
        self._ttl = ttl
        self.reserved: list[tuple[str, int, int]] = []
        # Rows that the transaction has certainly stored, by `seq`: attached devices receive them without a read of
        # their mailboxes. Only rows of the attempt that succeeded may be in it.
        self.stored: dict[int, mailbox.Envelope] = {}
        # For copies in memory only: recipient by `seq`, and the messages that the transaction stores.
        self.live: dict[int, str] = {}
        self.kept: Sequence[StoredGroupMessage] = ()

    def reserve(self, recipient: str, slot: int) -> int:
        """Return a `seq` for an envelope that the transaction stores."""
        seq = self._router.reserve(recipient, slot)
        self.reserved.append((recipient, slot, seq))
        return seq

    def may_be_live(self, sender: str, size: int) -> bool:
        """Return whether copies of another message of `size` bytes may be held in memory only."""
        return self._router.live.has_room(sender, size)

    def reserve_live(self, recipient: str) -> int:
        """Return a `seq` for a copy in memory only; 0 when there is no room."""
        seq = self._router.live.reserve(recipient)
        if seq:
            self.live[seq] = recipient
        return seq

    def release(self) -> None:
        """Release the positions after the transaction, whether it committed or not."""
        for message in self.kept:
            for seq in message.copies.values():
                del self.live[seq]
            self._router.live.hand_over(message)
        for seq, number in self.live.items():
            self._router.live.give_back(number, seq)
        for number, slot, seq in self.reserved:
            self._router.release(number, slot, seq, self.stored.get(seq))

    async def store(self, connection: Connection, notices: Sequence[Notice]) -> Sequence[mailbox.Envelope]:
        """Write and return notices, which are delivered when the transaction has committed."""
        now = int(self._clock.now() * 1000)
        rows = []
        for notice in notices:
            slot = device.slot_of(notice.sender, notice.kind, notice.group)
            seq = self.reserve(notice.recipient, slot)
            rows.append(
                mailbox.Envelope(
                    seq=seq,
                    recipient=notice.recipient,
                    sender=notice.sender,
                    id=f"{notice.kind}.{seq}",
                    kind=notice.kind,
                    timestamp=now,
                    expires_at=now + self._ttl * 1000,
                    body=notice.body,
                    refs=list(notice.refs),
                    group=notice.group,
                    slot=slot,
                )
            )
        await mailbox.insert(connection, rows)
        return rows


class Notices:
    """Notices stored outside of the router, in the right order of each mailbox."""

    def __init__(self, router: Router, clock: Clock, ttl: int) -> None:
        self._router = router
        self._clock = clock
        self._ttl = ttl

    @contextlib.contextmanager
    def reservations(self) -> Iterator[Reservations]:
        """Hold reservations around a transaction. Exit after the commit or the failure."""
        reservations = Reservations(self._router, self._clock, self._ttl)
        try:
            yield reservations
        finally:
            reservations.release()
