"""The way to one recipient: what is in flight to its device, what waits behind that, and how far its mailbox was read.

offline ──login──▶ draining ──nothing left──▶ live
   ▲                  ▲                        │
   │                  └───── overflow ─────────┤
   └──────────────── disconnect ───────────────┘
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from network.routing.transit import Transit
    from tidings.wire import device


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
    """The state of one recipient. Envelopes leave it in the order of their `seq`, and each once for each connection.

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
    storing:         the `seq` of each envelope that is on its way into the mailbox and was not delivered on this
                     connection.
    gap:             the lowest `seq` that was on its way at some moment since the reading of a page began: from there
                     on the page may be incomplete, since what is stored may become visible in another order.
    """

    __slots__ = (
        "attachment",
        "backlog",
        "cursor",
        "epoch",
        "gap",
        "held",
        "in_flight",
        "in_flight_bytes",
        "number",
        "page_size",
        "reading",
        "session",
        "storing",
    )

    def __init__(self, number: str, page_size: int) -> None:
        self.number = number
        self.session: Recipient | None = None
        self.attachment = 0
        self.epoch = 0
        self.in_flight: dict[int, Transit] = {}
        self.in_flight_bytes = 0
        self.held: collections.deque[Transit] = collections.deque()
        self.cursor = 0
        self.backlog = False
        self.reading = False
        self.page_size = page_size
        self.storing: dict[int, None] = {}
        self.gap: int | None = None

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
        self.backlog = False
        return transits

    def expect(self, seq: int) -> None:
        """An envelope sets out for the mailbox."""
        self.storing[seq] = None
        if self.gap is None or seq < self.gap:
            self.gap = seq

    def begin_reading(self) -> None:
        """A page of the mailbox is about to be read."""
        self.reading = True
        self.backlog = False
        self.gap = min(self.storing, default=None)

    @property
    def draining(self) -> bool:
        """Something older than whatever arrives now is, or may be, in the mailbox."""
        return self.backlog or self.reading or bool(self.storing)

    @property
    def unused(self) -> bool:
        """Nothing would be lost by forgetting this queue."""
        return self.session is None and not self.storing and not self.reading
