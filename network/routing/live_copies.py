"""Copies of group messages for attached devices: in memory only, while one row holds the message."""

from __future__ import annotations

import collections
from collections.abc import Callable

from prometheus_client import Gauge

from network.routing.delivery_queue import Transit, make_frame
from network.routing.delivery_queues import DeliveryQueues
from network.routing.sender_bytes import SenderBytes
from network.routing.sequence import Numbers
from network.routing.windows import Windows
from network.settings import Limits
from tidings.aio.clock import Clock
from tidings.storage.network import mailbox
from tidings.storage.network.group_messages import StoredGroupMessage
from tidings.wire import device

LIVE = Gauge("tidings_network_group_copies_live", "Copies of messages to groups that are only in memory")

# Inverse of the fraction of `Limits.undecided`, and of its bytes, that copies may use in addition.
PART = 4


class LiveMessage:
    """Message with undecided copies."""

    __slots__ = ("_copies", "message", "size", "undecided")

    def __init__(self, copies: LiveCopies, message: StoredGroupMessage, size: int) -> None:
        self._copies = copies
        self.message = message
        self.size = size
        self.undecided = len(message.copies)

    def decided(self) -> None:
        """Record that one more copy was acknowledged or stored, or never will be."""
        self.undecided -= 1
        self._copies.decided(self)


class LiveCopies:
    """Copies that keep their reserved order once their message is stored, and are then handled like any envelope.

    At most a quarter of `Limits.undecided` copies are held, and messages of a quarter of `Limits.undecided_bytes`, of
    which one sender may use an eighth. Beyond that a copy is stored in the mailbox with its message.

    on_decided: called with the `seq` of a stored message when each of its copies is acknowledged or in the mailbox.
    """

    def __init__(
        self,
        queues: DeliveryQueues,
        windows: Windows,
        due: collections.deque[Transit],
        *,
        numbers: Numbers,
        clock: Clock,
        limits: Limits,
    ) -> None:
        """due: the router's envelopes, in the order in which they are due."""
        self.on_decided: Callable[[int], None] = _forget
        # Called with (sender, number) before a copy is delivered or queued.
        self.before: Callable[[str, str], None] = lambda sender, number: None
        self._queues = queues
        self._windows = windows
        self._due = due
        self._numbers = numbers
        self._clock = clock
        self._store_after = limits.store_after
        self._most = limits.undecided // PART
        self._count = 0
        self._bytes = SenderBytes(limits.undecided_bytes // PART)
        self._closed = False

    @property
    def count(self) -> int:
        """Return the number of undecided copies and of reservations."""
        return self._count

    def has_room(self, sender: str, size: int) -> bool:
        """Return whether another message of `size` bytes may be held."""
        return not self._closed and self._bytes.has_room(sender, size)

    def reserve(self, number: str) -> int:
        """Return a `seq` for a copy, 0 when the device is not attached here or there is no room.

        Later envelopes for the device wait until `hand_over` or `give_back`.
        """
        queue = self._queues.find(number, device.GROUP_SLOT)
        if queue is None or queue.session is None or self._count >= self._most:
            return 0
        seq = self._numbers.next()
        queue.expect_copy(seq, device.GROUP_SLOT)
        self._count += 1
        return seq

    def give_back(self, number: str, seq: int) -> None:
        """Cancel a reservation: the message was not stored."""
        queue = self._queues.get(number, device.GROUP_SLOT)
        del queue.storing[seq]
        self._count -= 1
        self._queues.pump(queue)

    def hand_over(self, message: StoredGroupMessage) -> None:
        """Deliver or queue the copies of a message that was stored."""
        due = self._clock.monotonic() + self._store_after
        size = mailbox.size_of(message.body, message.refs)
        live = LiveMessage(self, message, size)
        self._bytes.add(message.sender, size)
        for number, seq in message.copies.items():
            queue = self._queues.get(number, device.GROUP_SLOT)
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
            self._queues.put_away(transit)
            return
        storing, held = queue.storing, queue.held
        is_first = (
            not queue.backlog
            and not queue.reading
            and not (storing and min(storing) < transit.seq)
            and not (held and held[0].seq < transit.seq)
        )
        if is_first and self._windows.takes(queue, session):
            self._due.append(transit)
            self._queues.deliver(queue, session, transit)
        elif queue.youngest <= transit.seq:
            self._due.append(transit)
            self._queues.hold_in_order(transit)
        else:
            # Held envelopes must be younger than the mailbox, which may hold an envelope younger than this one.
            self._queues.put_away(transit)
        if queue.held or queue.backlog:
            self._queues.pump(queue)

    def decided(self, live: LiveMessage) -> None:
        """Count a decided copy of this message."""
        self._count -= 1
        if not live.undecided:
            self._bytes.remove(live.message.sender, live.size)
            self.on_decided(live.message.seq)

    def measure(self) -> None:
        """Update the gauge."""
        LIVE.set(self._count)

    def close(self) -> None:
        """Stop reserving and delivering. Stored messages are delivered after the next start."""
        self._closed = True


def _forget(seq: int) -> None:
    """Ignore a decided message; the default without stored messages."""
