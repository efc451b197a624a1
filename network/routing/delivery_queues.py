"""The queues of all recipients, and what each of them can do at the moment: deliver, hold, store or read."""

from __future__ import annotations

from collections.abc import Iterator

from network.routing.delivery_queue import STORED, STORING, DeliveryQueue, Recipient, Transit
from network.routing.reader import PAGE, Reader
from network.routing.windows import Windows
from network.routing.writer import Writer
from network.settings import Limits


class DeliveryQueues:
    """Queues by number, made when they are needed and forgotten when nothing is lost by it.

    delivered: envelopes sent to devices since the router last counted.
    """

    def __init__(self, reader: Reader, writer: Writer, windows: Windows, *, limits: Limits) -> None:
        self.page = min(PAGE, limits.window)
        self.delivered = 0
        self._reader = reader
        self._writer = writer
        self._windows = windows
        self._held = limits.held
        self._queues: dict[str, DeliveryQueue] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[DeliveryQueue]:
        return iter(self._queues.values())

    def find(self, number: str) -> DeliveryQueue | None:
        """The queue of this recipient, if there is one."""
        return self._queues.get(number)

    def get(self, number: str) -> DeliveryQueue:
        """The queue of this recipient, a new one if need be."""
        queue = self._queues.get(number)
        if queue is None:
            queue = self._queues[number] = DeliveryQueue(number, self.page)
        return queue

    def forget_if_unused(self, queue: DeliveryQueue) -> None:
        """Drop a queue by which nothing is lost."""
        if queue.unused:
            self._queues.pop(queue.number, None)

    def deliver(self, queue: DeliveryQueue, session: Recipient, transit: Transit) -> None:
        """Send an envelope to its device."""
        queue.sent(session, session.deliver(transit.frame, queue), transit)
        self.delivered += 1
        if transit.state == STORED:
            transit.frame.body = b""

    def hold(self, transit: Transit) -> None:
        """Keep an envelope in memory behind the others; over the limit, store all that is held."""
        held = transit.queue.held
        held.append(transit)
        if len(held) > self._held:
            self.put_away_held(transit.queue)

    def put_away_held(self, queue: DeliveryQueue) -> None:
        """Store all that a queue holds."""
        while queue.held:
            self.put_away(queue.held.popleft())

    def put_away(self, transit: Transit) -> None:
        """Store an envelope that is not in flight."""
        transit.counted = True
        transit.queue.expect(transit.seq)
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
