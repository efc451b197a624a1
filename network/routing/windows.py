"""Windows of what may be in flight to a device and on a connection, by envelopes and by bytes."""

from __future__ import annotations

from network.routing.delivery_queue import DeliveryQueue, Recipient
from network.settings import Limits


class Windows:
    """Decisions about room; the queues keep the counts.

    A device has room below `Limits.window` and `window_bytes`, a connection below `session_bytes`; so the last
    envelope may go beyond the bytes, and with nothing in flight there is always room for one. Queues for which their
    connection had no room stand in `Recipient.waiting`. From then on until half of it is free nothing goes out but by
    their turns, first come, first served; as long as somebody stands there something is in flight, so turns come.
    """

    def __init__(self, limits: Limits) -> None:
        self._envelopes = limits.window
        self._bytes = limits.window_bytes
        self._session_bytes = limits.session_bytes

    def has_room(self, queue: DeliveryQueue, session: Recipient) -> bool:
        """For one more envelope? A queue that only its connection stops waits for its turn from now on."""
        if len(queue.in_flight) >= self._envelopes or queue.in_flight_bytes >= self._bytes:
            return False
        if session.in_flight_bytes < self._session_bytes:
            return True
        session.waiting[queue] = None
        return False

    def takes(self, queue: DeliveryQueue, session: Recipient) -> bool:
        """The same for a queue whose turn it is not: those that wait go first."""
        if session.waiting:
            session.waiting[queue] = None
            return False
        return self.has_room(queue, session)

    def is_worth_a_page(self, queue: DeliveryQueue) -> bool:
        """Is there room for a good part of the next page? For less it is not worth its query."""
        return self._envelopes - len(queue.in_flight) >= queue.page_size and 2 * queue.in_flight_bytes <= self._bytes

    def next_turn(self, session: Recipient) -> DeliveryQueue | None:
        """Takes the queue whose turn it is, if there is one and room enough."""
        if not session.waiting or 2 * session.in_flight_bytes > self._session_bytes:
            return None
        queue = next(iter(session.waiting))
        del session.waiting[queue]
        return queue
