"""The queues of all recipients, and what each of them can do at the moment: deliver, hold, store or read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from network.routing.delivery_queue import STORED, STORING, DeliveryQueue, Recipient, Transit
from network.routing.reader import PAGE, Reader
from network.routing.windows import Windows
from network.routing.writer import Writer
from network.settings import Limits
from tidings.wire import device


class DividedRecipient:
    """Queues of a recipient whose device is logged in in partitions, at most one for each of these."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.queues: dict[int, DeliveryQueue] = {}


class DeliveryQueues:
    """Queues by number, made when they are needed and forgotten when nothing is lost by it.

    A recipient has one queue, or with a device in partitions one for each of these; as long as none of its queues is
    there it counts as one whole.

    delivered: envelopes sent to devices since the router last counted.
    """

    def __init__(self, reader: Reader, writer: Writer, windows: Windows, *, limits: Limits) -> None:
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
        """Recipients that have queues."""
        return len(self._whole) + len(self._divided)

    def __iter__(self) -> Iterator[DeliveryQueue]:
        yield from self._whole.values()
        for divided in self._divided.values():
            yield from divided.queues.values()

    def of(self, number: str) -> Sequence[DeliveryQueue]:
        """Every queue that this recipient has."""
        whole = self._whole.get(number)
        if whole is not None:
            return (whole,)
        divided = self._divided.get(number)
        return () if divided is None else list(divided.queues.values())

    def find_for(self, frame: device.Send) -> DeliveryQueue | None:
        """The queue that an envelope belongs to, if there is one."""
        slot = device.slot_of(frame.sender, frame.kind, frame.group) if frame.to in self._divided else 0
        return self.find(frame.to, slot)

    def find(self, number: str, slot: int) -> DeliveryQueue | None:
        """The queue of this recipient that has a slot, if there is one."""
        queue = self._whole.get(number)
        if queue is None and (divided := self._divided.get(number)) is not None:
            queue = divided.queues.get(slot % divided.partitions)
        return queue

    def get_for(self, frame: device.Send) -> DeliveryQueue:
        """The queue that an envelope belongs to, a new one if need be."""
        queue = self._whole.get(frame.to)
        if queue is None:
            slot = device.slot_of(frame.sender, frame.kind, frame.group) if frame.to in self._divided else 0
            queue = self.get(frame.to, slot)
        return queue

    def get(self, number: str, slot: int) -> DeliveryQueue:
        """The queue of this recipient that has a slot, a new one if need be."""
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
        """The queue that waits for an envelope to be stored. The recipient may have been divided since it set out."""
        queue = transit.queue
        return queue if transit.seq in queue.storing else self.get(queue.number, transit.slot)

    def divide(self, number: str, partitions: int) -> None:
        """Give this recipient so many queues from now on. When that is another number than before, nobody is logged in
        on those that it had: everything is in the mailbox, or on its way there."""
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
        """Drop a queue by which nothing is lost."""
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

    def deliver(self, queue: DeliveryQueue, session: Recipient, transit: Transit) -> None:
        """Send an envelope to its device."""
        queue.sent(session, session.deliver(transit.frame, queue), transit)
        self.delivered += 1
        if transit.state == STORED:
            transit.frame.body = b""

    def hold(self, transit: Transit) -> None:
        """Keep an envelope in memory behind the others; over the limit, store all that is held."""
        queue = transit.queue
        if queue.hold(transit) > self._held:
            self.put_away_held(queue)
        if queue.again and not queue.reading:
            self.pump(queue)

    def hold_in_order(self, transit: Transit) -> None:
        """The same for one that may be older than some of those."""
        queue = transit.queue
        if queue.hold_in_order(transit) > self._held:
            self.put_away_held(queue)

    def put_away_held(self, queue: DeliveryQueue) -> None:
        """Store all that a queue holds."""
        while queue.held:
            self.put_away(queue.held.popleft())

    def put_away(self, transit: Transit) -> None:
        """Store an envelope that is not in flight."""
        transit.counted = True
        transit.queue.expect(transit.seq, transit.slot)
        self.store(transit)

    def store(self, transit: Transit) -> None:
        """Store an envelope where it is."""
        transit.state = STORING
        self._writer.insert(transit)

    def pump(self, queue: DeliveryQueue) -> None:
        """Let a queue do what it can, when those that wait for the same connection have had their turns."""
        session = queue.session
        if session is None:
            self.forget_if_unused(queue)
        elif (queue.backlog or queue.held) and not queue.reading and self._windows.takes(queue, session):
            self._advance(queue, session)

    def give_turns(self, session: Recipient) -> None:
        """Something has left this connection: the queues that wait for it go on."""
        while (queue := self._windows.next_turn(session)) is not None:
            self._advance(queue, session)

    def stop(self) -> None:
        """Deliver and read no more."""
        self._closed = True

    def _advance(self, queue: DeliveryQueue, session: Recipient) -> None:
        """Read the mailbox first, then deliver what is held."""
        if queue.reading or self._closed:
            return
        if queue.backlog:
            if self._windows.is_worth_a_page(queue):
                self._reader.start(queue)
            return
        while queue.held and not queue.storing and self._windows.has_room(queue, session):
            self.deliver(queue, session, queue.held.popleft())
