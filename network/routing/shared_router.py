"""Router of one of several nodes: forwards envelopes of devices on other nodes, and finds envelopes stored there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Protocol

from network.routing.delivery_queue import STORED, DeliveryQueue, EnvelopeOrigin, RecipientConnection, Transit, from_row
from network.routing.router import Router
from tidings.aio.lru import LRU
from tidings.storage.network import mailbox
from tidings.storage.network.mailbox import Envelope
from tidings.wire import device

# Envelopes read from the mailbox whose `seq` is remembered, so that a later announcement does not deliver them twice.
REMEMBERED = 50_000


class NodePeers(Protocol):
    """The other nodes, to which devices may be attached."""

    def take_over(self, origin: EnvelopeOrigin, frame: device.Send, *, here: bool, storing: bool) -> bool:
        """Take over an envelope that another node delivers or may deliver, or that is stored for it. Returns False if
        this node is to route it.

        here: whether its recipient is attached to this node.
        storing: whether an envelope for its recipient is being stored.
        """

    def stored(self, number: str, rows: Iterable[Envelope] = ()) -> None:
        """Announce stored envelopes of a device that is not attached here, so that its node reads the mailbox.

        rows: the envelopes; empty when the caller no longer has them.
        """

    def attached(self, number: str) -> None:
        """Record that a device, or a partition of it, attached here."""

    def must_read_before_copy(self, sender: str, number: str) -> bool:
        """Return whether the mailbox of a device must be read before the next group copy; True only once."""

    def detached(self, number: str, part: device.Partition) -> None:
        """Record that a device or one of its partitions has detached from this node."""


class SharedRouter(Router):
    """Router whose mailboxes other nodes fill too. A device's queue is on the node that the device is attached to.

    Envelopes of another node may have lower numbers than those delivered before they arrived. Then the mailbox is read
    from its start again, without the envelopes in flight.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._peers: NodePeers | None = None
        self._read: LRU[int, bool] = LRU(REMEMBERED)
        self._reader.removing = self._writer.removing

    def join(self, peers: NodePeers) -> None:
        """Connect the router to the other nodes."""
        self._peers = peers
        self.live.before = self._before_copy

    # Calls by and for other nodes.

    def send(self, origin: EnvelopeOrigin, frame: device.Send) -> None:
        """Route one envelope, to another node if its recipient is attached there."""
        queue = self._queues.find_for(frame)
        here = queue is not None and queue.session is not None
        storing = queue is not None and bool(queue.storing)
        if self._peers is None or not self._peers.take_over(origin, frame, here=here, storing=storing):
            super().send(origin, frame)

    def send_here(self, origin: EnvelopeOrigin, frame: device.Send) -> None:
        """Deliver or store an envelope on this node, wherever its recipient is attached."""
        super().send(origin, frame)

    def is_here(self, frame: device.Send) -> bool:
        """Return whether the recipient, or the partition that the envelope belongs to, is attached here."""
        queue = self._queues.find_for(frame)
        return queue is not None and queue.session is not None

    def is_storing(self, frame: device.Send) -> bool:
        """Return whether an earlier envelope of the same queue is being stored."""
        queue = self._queues.find_for(frame)
        return queue is not None and bool(queue.storing)

    def is_attached(self, number: str, partition: int) -> bool:
        """Return whether this partition of a device is attached here."""
        return any(queue.session is not None and queue.part.partition == partition for queue in self._queues.of(number))

    def expel_part(self, number: str, partition: int, reason: str) -> None:
        """Remove a partition of a device from its connection."""
        for queue in self._queues.of(number):
            if queue.session is not None and queue.part.partition == partition:
                self._detach(queue, reason)

    def tokens_of(self, number: str) -> Set[bytes]:
        """Return the hashes of the tokens with which a device, or its partitions, are attached here."""
        return {queue.session.token_of(number) for queue in self._queues.of(number) if queue.session is not None}

    def expel_tokens(self, number: str, void: Set[bytes], reason: str) -> None:
        """Remove a device from its connections that it logged in on with one of these tokens."""
        for queue in self._queues.of(number):
            if queue.session is not None and queue.session.token_of(number) in void:
                self._detach(queue, reason)

    def read_mailbox(self, number: str, rows: Sequence[mailbox.Envelope] = ()) -> None:
        """Read the mailbox of a number for which another node has stored envelopes.

        rows: the stored envelopes; empty when they are not known.
        """
        for queue in self._queues.of(number):
            session = queue.session
            if session is None:
                continue
            own = [row for row in rows if queue.has(row.slot)]
            if not rows or not all(self._offer(queue, session, row) for row in own):
                queue.again = queue.backlog = True
                self._queues.pump(queue)

    def require_read(self, number: str = "") -> None:
        """Request a read of mailboxes from the start before anything else is delivered, of this number or of all
        attached devices.

        The read starts with the next envelope or with `read_mailbox`.
        """
        queues = self._queues.of(number) if number else self._queues
        for queue in queues:
            if queue.session is not None:
                queue.again = queue.backlog = True

    def require_read_before(self, frame: device.Send) -> None:
        """Request a read of the mailbox from the start before this envelope is delivered."""
        queue = self._queues.find_for(frame)
        if queue is not None and queue.session is not None:
            queue.again = queue.backlog = True

    def _before_copy(self, sender: str, number: str) -> None:
        if self._peers is not None and self._peers.must_read_before_copy(sender, number):
            self.require_read(number)

    def is_draining(self, number: str) -> bool:
        """Return whether the mailbox of this number is being read or about to be."""
        return any(queue.draining for queue in self._queues.of(number))

    def attach(
        self, number: str, session: RecipientConnection, login_epoch: int = 0, part: device.Partition = device.WHOLE
    ) -> None:
        super().attach(number, session, login_epoch, part)
        if self._peers is not None:
            self._peers.attached(number)

    def _offer(self, queue: DeliveryQueue, session: RecipientConnection, row: mailbox.Envelope) -> bool:
        """Deliver a row that another node has stored; False when older envelopes or a full window come first."""
        if row.seq in self._read:
            return True
        if queue.held or queue.draining or not self._queues.may_deliver(queue, session):
            return False
        cursor = queue.cursor
        self._queues.deliver(queue, session, from_row(row, queue))
        queue.cursor = max(cursor, row.seq)
        self._read.put(row.seq, True)
        return True

    # Events of this node that other nodes must know.

    def _detach(self, queue: DeliveryQueue, reason: str) -> None:
        part = queue.part
        has_stored = any(transit.state == STORED for transit in queue.in_flight.values())
        super()._detach(queue, reason)
        if self._peers is None:
            return
        self._peers.detached(queue.number, part)
        if has_stored:
            # The device's new node may have read the mailbox before these were stored.
            self._peers.stored(queue.number)

    def _stored(self, transits: Sequence[Transit]) -> None:
        super()._stored(transits)
        if self._peers is None:
            return
        for transit in transits:
            if not transit.acked and self._is_away(transit.frame.to, transit.hash_slot):
                self._peers.stored(transit.frame.to)

    def release(self, number: str, hash_slot: int, seq: int, row: mailbox.Envelope | None = None) -> None:
        """Release a reservation, and announce the stored envelope to the device's node."""
        if row is not None:
            self._before_copy(row.sender, number)
        elif (queue := self._queues.find(number, hash_slot)) is not None and queue.session is not None:
            # Other nodes may have stored envelopes with lower numbers, and not announced them yet.
            queue.again = queue.backlog = True
        super().release(number, hash_slot, seq, row)
        if self._peers is not None and self._is_away(number, hash_slot):
            self._peers.stored(number, [] if row is None else [row])

    def _is_away(self, number: str, hash_slot: int) -> bool:
        return not any(queue.session is not None and queue.has(hash_slot) for queue in self._queues.of(number))

    def _page_read(self, queue: DeliveryQueue, attachment: int, page: Sequence[mailbox.Envelope] | None) -> None:
        super()._page_read(queue, attachment, page)
        for row in page or ():
            if row.seq <= queue.cursor:
                self._read.put(row.seq, True)
        if not queue.backlog and not queue.reading:
            queue.read_again()
