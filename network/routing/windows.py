"""Windows for deliveries in flight to a device and on a connection, by envelopes and by bytes."""

from __future__ import annotations

from network.routing.delivery_queue import DeliveryQueue, RecipientConnection
from network.settings import Limits


class Windows:
    """Decisions about room; the queues keep the counts.

    A device has room below `Limits.window` and `window_bytes`, a connection below `session_bytes`. So the last envelope
    may exceed the bytes, and with nothing in flight there is always room for one. Queues without room on their
    connection are listed in `RecipientConnection.waiting`. While there are any, only they deliver, in order of arrival,
    and only when half of the connection's bytes are free. Something is in flight whenever a queue waits, so
    acknowledgements will make room.
    """

    def __init__(self, limits: Limits) -> None:
        self._envelopes = limits.window
        self._bytes = limits.window_bytes
        self._session_bytes = limits.session_bytes

    def has_room(self, queue: DeliveryQueue, session: RecipientConnection) -> bool:
        """Return whether one more envelope may be delivered. A queue limited by its connection alone waits in order
        from now on.
        """
        if len(queue.in_flight) >= self._envelopes or queue.in_flight_bytes >= self._bytes:
            return False
        if session.in_flight_bytes < self._session_bytes:
            return True
        session.waiting[queue] = None
        return False

    def takes(self, queue: DeliveryQueue, session: RecipientConnection) -> bool:
        """Return whether a queue may deliver one more envelope now, behind the queues that wait already."""
        if session.waiting:
            session.waiting[queue] = None
            return False
        return self.has_room(queue, session)

    def is_worth_a_page(self, queue: DeliveryQueue) -> bool:
        """Return whether there is room for a good part of the next page; less is not worth the query."""
        return self._envelopes - len(queue.in_flight) >= queue.page_size and 2 * queue.in_flight_bytes <= self._bytes

    def next_turn(self, session: RecipientConnection) -> DeliveryQueue | None:
        """Remove and return the next waiting queue, `None` when there is none or too little room."""
        if not session.waiting or 2 * session.in_flight_bytes > self._session_bytes:
            return None
        queue = next(iter(session.waiting))
        del session.waiting[queue]
        return queue
