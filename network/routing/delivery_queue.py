"""Envelopes on their way to one recipient, or one part of it: in flight to its device, held behind, or in its mailbox.

offline ──login──▶ draining ──nothing left──▶ live
   ▲                  ▲                        │
   │                  └───── overflow ─────────┤
   └──────────────── disconnect ───────────────┘
"""

from __future__ import annotations

import collections
from collections.abc import Sequence, Set
from typing import Protocol

import msgspec

from tidings.storage.network import mailbox
from tidings.storage.network.messages import Message
from tidings.wire import addresses, device

# States of a `Transit`: WAITING → STORING → STORED, and back to WAITING when the database refuses the row of one that
# is with its device.
WAITING = 0  # only in memory
STORING = 1  # on its way to the database
STORED = 2  # committed in the database

_NONE: frozenset[int] = frozenset()
# What nearly every queue holds. Nothing can be put into it: an empty deque of its own takes 600 bytes.
_NOTHING: collections.deque[Transit] = collections.deque(maxlen=0)


class Origin(Protocol):
    """Sender of an envelope, which is told what became of it."""

    def accepted(self, n: int) -> None: ...

    def refused(self, n: int, reason: str, detail: str = "", retry_after: int = 0) -> None:
        """retry_after: seconds, for a reason that passes."""
        ...

    def superseded(self, n: int) -> None:
        """The same envelope came again, on this connection or another, and its decision is told under that number."""
        ...


class Original(Protocol):
    """Message to a group, of which an envelope in memory is a copy."""

    def decided(self) -> None:
        """A copy has been acknowledged or stored, or the database will never take it."""
        ...


class Transit(msgspec.Struct, eq=False):
    """An envelope in memory. It is decided when its sender has been told, so when it is stored or acknowledged.

    original: what it is a copy of, whose sender was told before.
    settled:  that original knows that it is decided.
    size:    bytes that it counts for while it is in flight: over half of those that it takes on any transport.
    frame:   what its recipient gets; the body is dropped as soon as nobody here needs it again.
    due:     monotonic seconds at which it is stored if it is still undecided.
    origin:  the connection that sent it last, `None` when nobody waits for the decision.
    n:       the number under which that connection sent it.
    counted: it is one of those that its queue waits for the storing of.
    """

    seq: int
    frame: device.Deliver
    queue: DeliveryQueue
    expires_at: int
    size: int
    due: float = 0.0
    origin: Origin | None = None
    n: int = 0
    state: int = WAITING
    in_flight: bool = False
    acked: bool = False
    counted: bool = False
    original: Original | None = None
    settled: bool = False

    def row(self) -> mailbox.Envelope:
        """As it is stored."""
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
            slot=self.slot,
        )

    @property
    def slot(self) -> int:
        """The slot of its recipient's that it falls into."""
        frame = self.frame
        return device.slot_of(frame.sender, frame.kind, frame.group)


class Recipient(Protocol):
    """A connection with a device on it."""

    # Which queue each delivery went out on, by the number that the device acknowledges it with.
    deliveries: dict[int, DeliveryQueue]
    # The size of these deliveries.
    in_flight_bytes: int
    # The queues for which there was no room on it, in the order in which they came.
    waiting: dict[DeliveryQueue, None]

    def deliver(self, frame: device.Deliver, queue: DeliveryQueue) -> int:
        """Send it under a number of this connection's own, which is returned."""
        ...

    def detached(self, number: str, reason: str) -> None:
        """That device is no longer on this connection."""
        ...


class DeliveryQueue:
    """Queue of one recipient, or of one partition of its device. Envelopes leave it in the order of their `seq`, and
    each once for each connection.

    part:            of the device; its layout is that of the login, 0 while nobody is logged in.
    session:         the connection that its device is on; at most one.
    attachment:      counts the logins, so that what was begun for an earlier one is recognised.
    epoch:           that its device logged in under; 0 for none, and while nobody is logged in.
    in_flight:       delivered and not acknowledged, by delivery number. Bounded by `Windows`, as its bytes are.
    in_flight_bytes: the size of these.
    held:            in memory only, oldest first; younger than everything that is stored. Bounded by the router.
    cursor:          the highest `seq` delivered on this connection.
    backlog:         the mailbox may hold envelopes above the cursor.
    reading:         a page of the mailbox is being read.
    page_size:       envelopes in the next page: about as many as the latest ones have shown to fit into the window.
    storing:         the `seq` of each envelope that is on its way into the mailbox, or whose transaction is, and was
                     not delivered on this connection, with its slot.
    youngest:        the highest `seq` that has set out for the mailbox.
    again:           the next page is read from the start of the mailbox, since others have stored something there.
    known:           the `seq` of what was delivered before such a reading began; its pages have it too.
    highest:         the cursor before it, which is the cursor again when all is read.
    gap:             the lowest `seq` that was on its way at some moment since the reading of a page began: from there
                     on the page may be incomplete, since what is stored may become visible in another order.
    """

    __slots__ = (
        "again",
        "attachment",
        "backlog",
        "cursor",
        "epoch",
        "gap",
        "held",
        "highest",
        "in_flight",
        "in_flight_bytes",
        "known",
        "number",
        "page_size",
        "part",
        "reading",
        "session",
        "storing",
        "youngest",
    )

    def __init__(self, number: str, page_size: int, part: device.Partition = device.WHOLE) -> None:
        self.number = number
        self.part = part
        self.session: Recipient | None = None
        self.attachment = 0
        self.epoch = 0
        self.in_flight: dict[int, Transit] = {}
        self.in_flight_bytes = 0
        self.held: collections.deque[Transit] = _NOTHING
        self.cursor = 0
        self.backlog = False
        self.reading = False
        self.page_size = page_size
        self.storing: dict[int, int] = {}
        self.youngest = 0
        self.gap: int | None = None
        self.again = False
        self.known: Set[int] = _NONE
        self.highest = 0

    def hold(self, transit: Transit) -> int:
        """Keep it in memory behind the others; how many are held now."""
        if self.held is _NOTHING:
            self.held = collections.deque()
        self.held.append(transit)
        return len(self.held)

    def hold_in_order(self, transit: Transit) -> int:
        """The same for one that may be older than some of those; it is younger than everything that is stored."""
        count = self.hold(transit)
        held = self.held
        place = count - 1
        while place and held[place - 1].seq > transit.seq:
            held[place] = held[place - 1]
            place -= 1
        held[place] = transit
        return count

    def sent(self, session: Recipient, n: int, transit: Transit) -> None:
        """It has been delivered on its device's connection under this number."""
        self.cursor = transit.seq
        self.in_flight[n] = transit
        self.in_flight_bytes += transit.size
        session.in_flight_bytes += transit.size
        transit.in_flight = True

    def returned(self, session: Recipient, n: int) -> Transit:
        """It is no longer in flight; returns it."""
        transit = self.in_flight.pop(n)
        self.in_flight_bytes -= transit.size
        session.in_flight_bytes -= transit.size
        transit.in_flight = False
        return transit

    def leave(self, session: Recipient) -> Sequence[Transit]:
        """Its device is gone; returns what was in flight."""
        transits = list(self.in_flight.values())
        for n in list(self.in_flight):
            self.returned(session, n)
            del session.deliveries[n]
        session.waiting.pop(self, None)
        self.session = None
        self.epoch = 0
        self.backlog = self.again = False
        self.known, self.highest = _NONE, 0
        return transits

    def expect(self, seq: int, slot: int) -> None:
        """An envelope sets out for the mailbox."""
        self.expect_copy(seq, slot)
        if seq > self.youngest:
            self.youngest = seq

    def expect_copy(self, seq: int, slot: int) -> None:
        """A transaction is about to keep the original of an envelope that then goes on from here, in memory."""
        self.storing[seq] = slot
        if self.gap is None or seq < self.gap:
            self.gap = seq

    def begin_reading(self, removing: Set[int] = _NONE) -> None:
        """A page of the mailbox is about to be read. removing: the `seq` of each envelope on its way out of it."""
        if self.again:
            self.again = False
            self.highest = max(self.highest, self.cursor)
            self.cursor = 0
            self.known = {transit.seq for transit in self.in_flight.values()} | removing
        self.reading = True
        self.backlog = False
        self.gap = min(self.storing, default=None)

    def read_again(self) -> None:
        """All that was there has been read."""
        self.cursor = max(self.cursor, self.highest)
        self.known, self.highest = _NONE, 0

    def has(self, slot: int) -> bool:
        """Is this slot one of its part of the device?"""
        return slot % self.part.partitions == self.part.partition

    @property
    def slots(self) -> Sequence[int] | None:
        """The slots of its part of the device, `None` for all."""
        part = self.part
        return None if part.partitions == 1 else range(part.partition, addresses.SLOTS, part.partitions)

    @property
    def draining(self) -> bool:
        """Something older than whatever arrives now is, or may be, in the mailbox."""
        return self.backlog or self.reading or bool(self.storing)

    @property
    def unused(self) -> bool:
        """Nothing would be lost by forgetting this queue."""
        return self.session is None and not self.storing and not self.reading


def from_send(
    origin: Origin | None,
    frame: device.Send,
    queue: DeliveryQueue,
    *,
    size: int,
    seq: int,
    now: int,
    ttl: int,
    due: float,
) -> Transit:
    """An envelope that its sender has just given us. now: Unix milliseconds; ttl: seconds."""
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


def make_frame(message: Message, to: str, kind: str) -> device.Deliver:
    """A stored message on its way to one device."""
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
    """An envelope that comes out of the mailbox."""
    frame = make_frame(row, row.recipient, row.kind)
    size = mailbox.size_of(row.body, row.refs)
    return Transit(seq=row.seq, frame=frame, queue=queue, expires_at=row.expires_at, size=size, state=STORED)
