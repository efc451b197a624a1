"""Copies of group messages for attached devices: in memory only, while one row holds the message."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable

from prometheus_client import Gauge

from network.routing.delivery_queue import Transit, make_frame
from network.routing.delivery_queues import DeliveryQueues
from network.routing.sequence import Numbers
from network.routing.undecided import memory_quota
from network.settings import Limits
from tidings.aio.clock import Clock
from tidings.aio.quota import QuotaUsage
from tidings.storage.network import mailbox
from tidings.storage.network.group_messages import StoredGroupMessage
from tidings.wire import device

LIVE = Gauge("tidings_network_group_copies_live", "Copies of group messages that are only in memory")

# Inverse of the fraction of `Limits.undecided`, and of its bytes, that copies may use in addition.
PART = 4


@dataclasses.dataclass(slots=True, eq=False)
class LiveMessage:
    """Message with undecided copies."""

    copies: LiveCopies
    message: StoredGroupMessage
    size: int  # Bytes.
    undecided: int

    def decided(self) -> None:
        """Record that one more copy was acknowledged or stored, or never will be."""
        self.undecided -= 1
        self.copies.decided(self)


@dataclasses.dataclass(slots=True, eq=False)
class LiveCopies:
    """Copies that keep their reserved order once their message is stored, and are then handled like any envelope.

    At most a quarter of `Limits.undecided` copies are held, and messages of a quarter of `Limits.undecided_bytes`, of
    which one sender may use an eighth. Beyond that a copy is stored in the mailbox with its message.
    """

    queues: DeliveryQueues
    # The router's envelopes, in the order in which they are due.
    due: collections.deque[Transit]
    numbers: Numbers
    clock: Clock
    limits: Limits
    # Called with the `seq` of a stored message when each of its copies is acknowledged or in the mailbox.
    on_decided: Callable[[int], object] = lambda seq: None
    # Called with (sender, number) before a copy is delivered or queued.
    before: Callable[[str, str], None] = lambda sender, number: None
    # Undecided copies and reservations.
    count: int = 0
    _bytes: QuotaUsage[str] = dataclasses.field(default_factory=QuotaUsage)
    _closed: bool = False

    def has_room(self, sender: str, size: int) -> bool:
        """Return whether another message of `size` bytes may be held."""
        quota = memory_quota(self.limits.undecided_bytes // PART)
        return not self._closed and self._bytes.has_room(quota, sender, size)

    def reserve(self, number: str) -> int:
        """Return a `seq` for a copy, 0 when the device is not attached here or there is no room.

        Later envelopes for the device wait until `hand_over` or `cancel`.
        """
        queue = self.queues.find(number, device.GROUP_HASH_SLOT)
        if queue is None or queue.session is None or self.count >= self.limits.undecided // PART:
            return 0
        seq = self.numbers.next()
        queue.expect_copy(seq, device.GROUP_HASH_SLOT)
        self.count += 1
        return seq

    def cancel(self, number: str, seq: int) -> None:
        """Cancel a reservation: the message was not stored."""
        queue = self.queues.get(number, device.GROUP_HASH_SLOT)
        del queue.storing[seq]
        self.count -= 1
        self.queues.pump(queue)

    def hand_over(self, message: StoredGroupMessage) -> None:
        """Deliver or queue the copies of a message that was stored."""
        due = self.clock.monotonic() + self.limits.store_after
        size = mailbox.size_of(message.body, message.refs)
        live = LiveMessage(self, message, size, len(message.copies))
        self._bytes.add(message.sender, size)
        for number, seq in message.copies.items():
            queue = self.queues.get(number, device.GROUP_HASH_SLOT)
            del queue.storing[seq]
            frame = make_frame(message, number, device.GROUP)
            transit = Transit(seq, frame, queue, message.expires_at, size, due=due, original=live)
            if not self._closed:
                self.before(message.sender, number)
                self._place(transit)

    def _place(self, transit: Transit) -> None:
        """Deliver or queue a copy before the envelopes that arrived since its reservation."""
        queue = transit.queue
        session = queue.session
        if session is None:
            self.queues.store_undelivered(transit)
            return
        storing, held = queue.storing, queue.held
        is_first = (
            not queue.backlog
            and not queue.reading
            and not (storing and min(storing) < transit.seq)
            and not (held and held[0].seq < transit.seq)
        )
        if is_first and self.queues.may_deliver(queue, session):
            self.due.append(transit)
            self.queues.deliver(queue, session, transit)
        elif queue.youngest <= transit.seq:
            self.due.append(transit)
            self.queues.hold_in_order(transit)
        else:
            # Held envelopes must be younger than the mailbox, which may hold an envelope younger than this one.
            self.queues.store_undelivered(transit)
        if queue.held or queue.backlog:
            self.queues.pump(queue)

    def decided(self, live: LiveMessage) -> None:
        """Count a decided copy of this message."""
        self.count -= 1
        if not live.undecided:
            self._bytes.remove(live.message.sender, live.size)
            self.on_decided(live.message.seq)

    def measure(self) -> None:
        """Update the gauge."""
        LIVE.set(self.count)

    def close(self) -> None:
        """Stop reserving and delivering. Stored messages are delivered after the next start."""
        self._closed = True
