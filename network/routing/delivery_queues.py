"""Queues of all recipients, and the next step of each: deliver, hold, store or read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from network.routing.delivery_queue import STORED, STORING, DeliveryQueue, RecipientConnection, Transit
from network.routing.reader import PAGE, PageReader
from network.routing.writer import Writer
from network.settings import Limits
from tidings.wire import device


@dataclasses.dataclass(slots=True)
class DividedRecipient:
    """Queues of a recipient whose device logs in in partitions, at most one per partition."""

    partitions: int
    queues: dict[int, DeliveryQueue] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False)
class DeliveryQueues:
    """Queues by number, created when they are needed and dropped when no state is lost.

    A recipient has one queue, or one per partition of its device. Without any queue it counts as undivided.

    Windows bound the deliveries in flight. A device has room below `Limits.window` and `window_bytes`, a connection
    below `session_bytes`. So the last envelope may exceed the bytes, and with nothing in flight there is always room
    for one. Queues without room on their connection are listed in `RecipientConnection.waiting`. While there are any,
    only they deliver, in order of arrival, and only when half of the connection's bytes are free. Something is in
    flight whenever a queue waits, so acknowledgements will make room.
    """

    reader: PageReader
    writer: Writer
    limits: Limits
    # Envelopes sent to devices since the router last counted.
    delivered: int = 0
    _whole: dict[str, DeliveryQueue] = dataclasses.field(default_factory=dict)
    _divided: dict[str, DividedRecipient] = dataclasses.field(default_factory=dict)
    _closed: bool = False

    @property
    def page(self) -> int:
        """Return the most envelopes in one page of a mailbox."""
        return min(PAGE, self.limits.window)

    def __len__(self) -> int:
        """Return the number of recipients that have queues."""
        return len(self._whole) + len(self._divided)

    def __iter__(self) -> Iterator[DeliveryQueue]:
        yield from self._whole.values()
        for divided in self._divided.values():
            yield from divided.queues.values()

    def of(self, number: str) -> Sequence[DeliveryQueue]:
        """Return every queue of this recipient."""
        whole = self._whole.get(number)
        if whole is not None:
            return (whole,)
        divided = self._divided.get(number)
        return () if divided is None else list(divided.queues.values())

    def is_empty(self, number: str) -> bool:
        """Return whether the only device of this recipient has acknowledged all envelopes of its mailbox, and none is
        on its way.
        """
        queue = self._whole.get(number)
        return queue is not None and queue.is_settled

    def find_for(self, frame: device.Send) -> DeliveryQueue | None:
        """Return the queue that an envelope belongs to, `None` when it does not exist."""
        hash_slot = device.hash_slot_of(frame.sender, frame.kind, frame.group) if frame.to in self._divided else 0
        return self.find(frame.to, hash_slot)

    def find(self, number: str, hash_slot: int) -> DeliveryQueue | None:
        """Return the queue of this recipient that has a hash slot, `None` when it does not exist."""
        queue = self._whole.get(number)
        if queue is None and (divided := self._divided.get(number)) is not None:
            queue = divided.queues.get(hash_slot % divided.partitions)
        return queue

    def get_for(self, frame: device.Send) -> DeliveryQueue:
        """Return the queue that an envelope belongs to; create it if necessary."""
        queue = self._whole.get(frame.to)
        if queue is None:
            hash_slot = device.hash_slot_of(frame.sender, frame.kind, frame.group) if frame.to in self._divided else 0
            queue = self.get(frame.to, hash_slot)
        return queue

    def get(self, number: str, hash_slot: int) -> DeliveryQueue:
        """Return the queue of this recipient that has a hash slot; create it if necessary."""
        queue = self._whole.get(number)
        if queue is not None:
            return queue
        divided = self._divided.get(number)
        if divided is None:
            queue = self._whole[number] = DeliveryQueue(number, self.page)
            return queue
        partition = hash_slot % divided.partitions
        queue = divided.queues.get(partition)
        if queue is None:
            part = device.Partition(partition, divided.partitions)
            queue = divided.queues[partition] = DeliveryQueue(number, self.page, part)
        return queue

    def expecting(self, transit: Transit) -> DeliveryQueue:
        """Return the queue that waits for an envelope to be stored. The recipient may have been divided since it was
        sent.
        """
        queue = transit.queue
        return queue if transit.seq in queue.storing else self.get(queue.number, transit.hash_slot)

    def divide(self, number: str, partitions: int) -> None:
        """Give this recipient one queue per partition from now on.

        When the number of partitions changes, no device is logged in on the previous queues: all envelopes are in the
        mailbox or being stored.
        """
        former = self.of(number)
        if any(queue.part.partitions == partitions for queue in former):
            return
        self._whole.pop(number, None)
        self._divided.pop(number, None)
        if partitions > 1:
            self._divided[number] = DividedRecipient(partitions)
        for queue in former:
            for seq, hash_slot in queue.storing.items():
                self.get(number, hash_slot).expect(seq, hash_slot)
            queue.storing = {}

    def drop_if_unused(self, queue: DeliveryQueue) -> None:
        """Drop a queue if no state is lost."""
        if not queue.unused:
            return
        number = queue.number
        if self._whole.get(number) is queue:
            del self._whole[number]
            return
        divided = self._divided.get(number)
        if divided is not None and divided.queues.get(queue.part.partition) is queue:
            del divided.queues[queue.part.partition]
            if not divided.queues:
                del self._divided[number]

    def deliver(self, queue: DeliveryQueue, session: RecipientConnection, transit: Transit) -> None:
        """Send an envelope to its device."""
        queue.sent(session, session.deliver(transit.frame, queue), transit)
        self.delivered += 1
        if transit.state == STORED:
            transit.frame.body = b""

    def hold(self, transit: Transit) -> None:
        """Hold an envelope in memory behind the others; over the limit, store all held ones."""
        queue = transit.queue
        if queue.hold(transit) > self.limits.held:
            self.store_held(queue)
        if queue.again and not queue.reading:
            self.pump(queue)

    def hold_in_order(self, transit: Transit) -> None:
        """Hold an envelope that may be older than held ones."""
        queue = transit.queue
        if queue.hold_in_order(transit) > self.limits.held:
            self.store_held(queue)

    def store_held(self, queue: DeliveryQueue) -> None:
        """Store all held envelopes of a queue."""
        while queue.held:
            self.store_undelivered(queue.held.popleft())

    def store_undelivered(self, transit: Transit) -> None:
        """Store an envelope that is not in flight."""
        transit.counted = True
        transit.queue.expect(transit.seq, transit.hash_slot)
        self.store(transit)

    def store(self, transit: Transit) -> None:
        """Store an envelope that stays in flight."""
        transit.state = STORING
        self.writer.insert(transit)

    # Windows.

    def has_room(self, queue: DeliveryQueue, session: RecipientConnection) -> bool:
        """Return whether one more envelope may be delivered. A queue limited by its connection alone waits in order
        from now on.
        """
        limits = self.limits
        if len(queue.in_flight) >= limits.window or queue.in_flight_bytes >= limits.window_bytes:
            return False
        if session.in_flight_bytes < limits.session_bytes:
            return True
        session.waiting[queue] = None
        return False

    def may_deliver(self, queue: DeliveryQueue, session: RecipientConnection) -> bool:
        """Return whether a queue may deliver one more envelope now, behind the queues that wait already."""
        if session.waiting:
            session.waiting[queue] = None
            return False
        return self.has_room(queue, session)

    def pump(self, queue: DeliveryQueue) -> None:
        """Deliver or read what a queue can, behind the queues that wait for the same connection."""
        session = queue.session
        if session is None:
            self.drop_if_unused(queue)
        elif (queue.backlog or queue.held) and not queue.reading and self.may_deliver(queue, session):
            self._advance(queue, session)

    def continue_waiting(self, session: RecipientConnection) -> None:
        """Continue the queues that wait for room on this connection."""
        while session.waiting and 2 * session.in_flight_bytes <= self.limits.session_bytes:
            queue = next(iter(session.waiting))
            del session.waiting[queue]
            self._advance(queue, session)

    def stop(self) -> None:
        """Stop delivering and reading."""
        self._closed = True

    def _advance(self, queue: DeliveryQueue, session: RecipientConnection) -> None:
        """Read the mailbox first, then deliver held envelopes."""
        if queue.reading or self._closed:
            return
        if queue.backlog:
            # Room for less than a good part of the next page is not worth the query.
            free = self.limits.window - len(queue.in_flight)
            if free >= queue.page_size and 2 * queue.in_flight_bytes <= self.limits.window_bytes:
                self.reader.start(queue)
            return
        while queue.held and not queue.storing and self.has_room(queue, session):
            self.deliver(queue, session, queue.held.popleft())
