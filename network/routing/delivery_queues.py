"""Queues of all recipients, and the next step of each: deliver, hold, store or read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from network.routing.delivery_queue import STORED, STORING, DeliveryQueue, RecipientConnection, Transit
from network.routing.reader import PAGE, PageReader
from network.routing.windows import Windows
from network.routing.writer import Writer
from network.settings import Limits
from tidings.wire import device


class DividedRecipient:
    """Queues of a recipient whose device logs in in partitions, at most one per partition."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.queues: dict[int, DeliveryQueue] = {}


class DeliveryQueues:
    """Queues by number, created when they are needed and dropped when no state is lost.

    A recipient has one queue, or one per partition of its device. Without any queue it counts as undivided.

    delivered: envelopes sent to devices since the router last counted.
    """

    def __init__(self, reader: PageReader, writer: Writer, windows: Windows, *, limits: Limits) -> None:
        self.page = min(PAGE, limits.window)
        self.delivered = 0
        self._reader = reader
        self._writer = writer
        self._windows = windows
        self._held = limits.held
        self._whole: dict[str, DeliveryQueue] = {}
        self._divided: dict[str, DividedRecipient] = {}
        self._closed = False

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

    def find_for(self, frame: device.Send) -> DeliveryQueue | None:
        """Return the queue that an envelope belongs to, `None` when it does not exist."""
        slot = device.slot_of(frame.sender, frame.kind, frame.group) if frame.to in self._divided else 0
        return self.find(frame.to, slot)

    def find(self, number: str, slot: int) -> DeliveryQueue | None:
        """Return the queue of this recipient that has a slot, `None` when it does not exist."""
        queue = self._whole.get(number)
        if queue is None and (divided := self._divided.get(number)) is not None:
            queue = divided.queues.get(slot % divided.partitions)
        return queue

    def get_for(self, frame: device.Send) -> DeliveryQueue:
        """Return the queue that an envelope belongs to; create it if necessary."""
        queue = self._whole.get(frame.to)
        if queue is None:
            slot = device.slot_of(frame.sender, frame.kind, frame.group) if frame.to in self._divided else 0
            queue = self.get(frame.to, slot)
        return queue

    def get(self, number: str, slot: int) -> DeliveryQueue:
        """Return the queue of this recipient that has a slot; create it if necessary."""
        queue = self._whole.get(number)
        if queue is not None:
            return queue
        divided = self._divided.get(number)
        if divided is None:
            queue = self._whole[number] = DeliveryQueue(number, self.page)
            return queue
        partition = slot % divided.partitions
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
        return queue if transit.seq in queue.storing else self.get(queue.number, transit.slot)

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
            for seq, slot in queue.storing.items():
                self.get(number, slot).expect(seq, slot)
            queue.storing = {}

    def forget_if_unused(self, queue: DeliveryQueue) -> None:
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
        if queue.hold(transit) > self._held:
            self.put_away_held(queue)
        if queue.again and not queue.reading:
            self.pump(queue)

    def hold_in_order(self, transit: Transit) -> None:
        """Hold an envelope that may be older than held ones."""
        queue = transit.queue
        if queue.hold_in_order(transit) > self._held:
            self.put_away_held(queue)

    def put_away_held(self, queue: DeliveryQueue) -> None:
        """Store all held envelopes of a queue."""
        while queue.held:
            self.put_away(queue.held.popleft())

    def put_away(self, transit: Transit) -> None:
        """Store an envelope that is not in flight."""
        transit.counted = True
        transit.queue.expect(transit.seq, transit.slot)
        self.store(transit)

    def store(self, transit: Transit) -> None:
        """Store an envelope that stays in flight."""
        transit.state = STORING
        self._writer.insert(transit)

    def pump(self, queue: DeliveryQueue) -> None:
        """Deliver or read what a queue can, behind the queues that wait for the same connection."""
        session = queue.session
        if session is None:
            self.forget_if_unused(queue)
        elif (queue.backlog or queue.held) and not queue.reading and self._windows.takes(queue, session):
            self._advance(queue, session)

    def give_turns(self, session: RecipientConnection) -> None:
        """Continue the queues that wait for room on this connection."""
        while (queue := self._windows.next_turn(session)) is not None:
            self._advance(queue, session)

    def stop(self) -> None:
        """Stop delivering and reading."""
        self._closed = True

    def _advance(self, queue: DeliveryQueue, session: RecipientConnection) -> None:
        """Read the mailbox first, then deliver held envelopes."""
        if queue.reading or self._closed:
            return
        if queue.backlog:
            if self._windows.is_worth_a_page(queue):
                self._reader.start(queue)
            return
        while queue.held and not queue.storing and self._windows.has_room(queue, session):
            self.deliver(queue, session, queue.held.popleft())
