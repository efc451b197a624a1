"""Envelopes on their way to one recipient, or one partition of it: in flight to its device, held behind, or in its
mailbox.

offline ──login──▶ draining ──mailbox empty──▶ live
   ▲                  ▲                          │
   │                  └────── overflow ──────────┤
   └───────────────── disconnect ────────────────┘
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence, Set
from typing import Protocol

import msgspec

from tidings.storage.network import mailbox
from tidings.storage.network.messages import StoredMessage
from tidings.wire import addresses, device

# States of a `Transit`: WAITING → STORING → STORED, and back to WAITING when the database refuses the row of one in
# flight.
WAITING = 0  # only in memory
STORING = 1  # on its way to the database
STORED = 2  # committed in the database

_NONE: frozenset[int] = frozenset()
# Shared by queues that hold nothing, which are nearly all. It accepts no items; an empty deque per queue would take 600
# bytes.
_NOTHING: collections.deque[Transit] = collections.deque(maxlen=0)


class EnvelopeOrigin(Protocol):
    """Sender of an envelope, which is notified of the decision."""

    def accepted(self, n: int) -> None: ...

    def refused(self, n: int, reason: str, detail: str = "", retry_after: int = 0) -> None:
        """Notify the sender of a refusal.

        retry_after: seconds, for a temporary reason; 0 otherwise.
        """

    def superseded(self, n: int) -> None:
        """Notify that the same envelope was sent again, and that the decision is sent under the later number."""


class GroupMessageOfCopies(Protocol):
    """Group message, of which an envelope in memory is a copy."""

    def decided(self) -> None:
        """Record that a copy was acknowledged or stored, or that the database will never accept it."""


class Transit(msgspec.Struct, eq=False):
    """Envelope in memory. It is decided once it is stored or acknowledged and its sender was notified."""

    seq: int
    # Delivery to the recipient; the body is dropped as soon as this process no longer needs it.
    frame: device.Deliver
    queue: DeliveryQueue
    # Unix milliseconds.
    expires_at: int
    # Bytes that it counts for while in flight: more than half of the bytes that it takes on any transport.
    size: int
    # Monotonic seconds at which it is stored if it is still undecided.
    due: float = 0.0
    # Connection that sent it last; `None` when no connection waits for the decision.
    origin: EnvelopeOrigin | None = None
    # Number under which that connection sent it.
    n: int = 0
    state: int = WAITING
    in_flight: bool = False
    acked: bool = False
    # Whether its queue waits for it to be stored.
    counted: bool = False
    # Group message that it is a copy of, whose sender was notified earlier; `None` for other envelopes.
    original: GroupMessageOfCopies | None = None
    # Whether the original has been notified of the decision.
    settled: bool = False

    def row(self) -> mailbox.Envelope:
        """Return the row to store."""
        frame = self.frame
        return mailbox.Envelope(
            seq=self.seq,
            recipient=frame.to,
            sender=frame.sender,
            id=frame.id,
            kind=frame.kind,
            timestamp=frame.timestamp,
            expires_at=self.expires_at,
            body=frame.body,
            refs=frame.refs,
            trace=frame.trace,
            group=frame.group,
            slot=self.hash_slot,
        )

    @property
    def hash_slot(self) -> int:
        """Return the recipient's hash slot that it belongs to."""
        frame = self.frame
        return device.hash_slot_of(frame.sender, frame.kind, frame.group)


class RecipientConnection(Protocol):
    """Connection with a device on it."""

    # Queue of each delivery, by the number with which the device acknowledges it.
    deliveries: dict[int, DeliveryQueue]
    # Bytes of these deliveries.
    in_flight_bytes: int
    # Queues that wait for room on this connection, in order of arrival.
    waiting: dict[DeliveryQueue, None]

    @property
    def host(self) -> str:
        """Address of the client."""

    def token_of(self, number: str) -> bytes:
        """Return the hash of the token with which a device on it has logged in."""

    def deliver(self, frame: device.Deliver, queue: DeliveryQueue) -> int:
        """Send a delivery under a number of this connection; return the number."""

    def deliver_transient(self, frame: device.Deliver) -> None:
        """Send a transient envelope, which is in no window and needs no acknowledgement."""

    def detached(self, number: str, reason: str) -> None:
        """Remove a device from this connection."""


@dataclasses.dataclass(slots=True, eq=False)
class DeliveryQueue:
    """Queue of one recipient, or of one partition of its device.

    Envelopes leave it in the order of their `seq`, and each once per connection.
    """

    number: str
    # Envelopes in the next page of the mailbox: about as many as have recently fit into the window.
    page_size: int
    # Partition of the device; its layout is that of the login, 0 while it is not logged in.
    part: device.Partition = device.WHOLE
    # Connection that the device is on; `None` while it is on none.
    session: RecipientConnection | None = None
    # Number of logins, by which work for an earlier login is recognised.
    attachment: int = 0
    # Epoch of the login; 0 for none, and while the device is not logged in.
    login_epoch: int = 0
    # Delivered and not acknowledged, by delivery number, and bytes of these. Both have windows.
    in_flight: dict[int, Transit] = dataclasses.field(default_factory=dict)
    in_flight_bytes: int = 0
    # Envelopes in memory only, oldest first; younger than all stored ones. Bounded by the router.
    held: collections.deque[Transit] = dataclasses.field(default_factory=lambda: _NOTHING)
    # Highest `seq` delivered on this connection.
    cursor: int = 0
    # Whether the mailbox may hold envelopes above the cursor.
    backlog: bool = False
    # Whether a page of the mailbox is being read.
    reading: bool = False
    # `seq` and hash slot of each envelope that is being stored, or whose transaction is running, and that was not
    # delivered on this connection.
    storing: dict[int, int] = dataclasses.field(default_factory=dict)
    # Highest `seq` that was given to the mailbox.
    youngest: int = 0
    # Lowest `seq` that was being stored at some time since the read of a page started. From there on the page may be
    # incomplete, because stored rows may become visible in another order.
    gap: int | None = None
    # Whether to read the next page from the start of the mailbox, because other nodes have stored envelopes in it.
    again: bool = False
    # `seq` of envelopes delivered before such a read started; its pages include them.
    known: Set[int] = _NONE
    # Cursor before such a read; it becomes the cursor again when everything is read.
    highest: int = 0

    def hold(self, transit: Transit) -> int:
        """Hold an envelope in memory behind the others; return the number of held envelopes."""
        if self.held is _NOTHING:
            self.held = collections.deque()
        self.held.append(transit)
        return len(self.held)

    def hold_in_order(self, transit: Transit) -> int:
        """Hold an envelope that may be older than held ones, but is younger than all stored ones."""
        count = self.hold(transit)
        held = self.held
        index = count - 1
        while index and held[index - 1].seq > transit.seq:
            held[index] = held[index - 1]
            index -= 1
        held[index] = transit
        return count

    def sent(self, session: RecipientConnection, n: int, transit: Transit) -> None:
        """Record a delivery on the device's connection under this number."""
        self.cursor = transit.seq
        self.in_flight[n] = transit
        self.in_flight_bytes += transit.size
        session.in_flight_bytes += transit.size
        transit.in_flight = True

    def returned(self, session: RecipientConnection, n: int) -> Transit:
        """Remove an envelope from those in flight, and return it."""
        transit = self.in_flight.pop(n)
        self.in_flight_bytes -= transit.size
        session.in_flight_bytes -= transit.size
        transit.in_flight = False
        return transit

    def leave(self, session: RecipientConnection) -> Sequence[Transit]:
        """Detach the device; return the envelopes that were in flight."""
        transits = list(self.in_flight.values())
        for n in list(self.in_flight):
            self.returned(session, n)
            del session.deliveries[n]
        session.waiting.pop(self, None)
        self.session = None
        self.login_epoch = 0
        self.backlog = self.again = False
        self.known, self.highest = _NONE, 0
        return transits

    def expect(self, seq: int, hash_slot: int) -> None:
        """Record that an envelope is being stored."""
        self.expect_copy(seq, hash_slot)
        if seq > self.youngest:
            self.youngest = seq

    def expect_copy(self, seq: int, hash_slot: int) -> None:
        """Record that a transaction stores the original of a group copy, which is then delivered from memory."""
        self.storing[seq] = hash_slot
        if self.gap is None or seq < self.gap:
            self.gap = seq

    def begin_reading(self, removing: Set[int] = _NONE) -> None:
        """Prepare for the read of a page of the mailbox.

        removing: `seq` of each envelope being removed from the mailbox.
        """
        if self.again:
            self.again = False
            self.highest = max(self.highest, self.cursor)
            self.cursor = 0
            # An empty set for each queue would take 216 bytes.
            self.known = {transit.seq for transit in self.in_flight.values()} | removing or _NONE
        self.reading = True
        self.backlog = False
        self.gap = min(self.storing, default=None)

    def read_again(self) -> None:
        """Restore the cursor after the whole mailbox has been read."""
        self.cursor = max(self.cursor, self.highest)
        self.known, self.highest = _NONE, 0

    def has(self, hash_slot: int) -> bool:
        """Return whether this hash slot belongs to this partition."""
        return hash_slot % self.part.partitions == self.part.partition

    @property
    def hash_slots(self) -> Sequence[int] | None:
        """Return the hash slots of this partition, `None` for all."""
        part = self.part
        return None if part.partitions == 1 else range(part.partition, addresses.HASH_SLOTS, part.partitions)

    @property
    def draining(self) -> bool:
        """Return whether the mailbox holds, or may hold, older envelopes than one that arrives now."""
        return self.backlog or self.reading or bool(self.storing)

    @property
    def is_settled(self) -> bool:
        """Return whether the device has acknowledged everything that was in the mailbox or in memory."""
        return self.session is not None and not (self.draining or self.held or self.in_flight)

    @property
    def unused(self) -> bool:
        """Return whether dropping this queue loses no state."""
        return self.session is None and not self.storing and not self.reading


def from_send(
    origin: EnvelopeOrigin | None,
    frame: device.Send,
    queue: DeliveryQueue,
    *,
    size: int,
    seq: int,
    now: int,
    ttl: int,
    due: float,
) -> Transit:
    """Return the transit of an envelope that its sender has just sent.

    now: Unix milliseconds.
    ttl: seconds.
    due: monotonic seconds.
    """
    return Transit(
        seq=seq,
        frame=device.Deliver(
            n=0,
            to=frame.to,
            sender=frame.sender,
            id=frame.id,
            kind=frame.kind,
            timestamp=now,
            body=frame.body,
            refs=frame.refs,
            trace=frame.trace,
            group=frame.group,
        ),
        queue=queue,
        expires_at=now + ttl * 1000,
        size=size,
        due=due,
        origin=origin,
        n=frame.n,
    )


def make_frame(message: StoredMessage, to: str, kind: str) -> device.Deliver:
    """Return the delivery of a stored message to one device."""
    return device.Deliver(
        n=0,
        to=to,
        sender=message.sender,
        id=message.id,
        kind=kind,
        timestamp=message.timestamp,
        body=message.body,
        refs=message.refs,
        trace=message.trace,
        group=message.group,
    )


def from_row(row: mailbox.Envelope, queue: DeliveryQueue) -> Transit:
    """Return the transit of an envelope read from the mailbox."""
    frame = make_frame(row, row.recipient, row.kind)
    size = mailbox.size_of(row.body, row.refs)
    return Transit(seq=row.seq, frame=frame, queue=queue, expires_at=row.expires_at, size=size, state=STORED)
