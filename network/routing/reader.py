"""Reader of the mailboxes of devices that have logged in, a page at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence, Set

from network.routing.delivery_queue import DeliveryQueue
from network.routing.mailbox import MailboxStore
from tidings.runtime.clock import Clock
from tidings.storage.network.mailbox import Envelope

log = logging.getLogger(__name__)

# Envelopes in one page at most.
PAGE = 200

# (the queue, its attachment when the reading began, the page or `None` when it could not be read)
Read = Callable[[DeliveryQueue, int, Sequence[Envelope] | None], None]


class Reader:
    """Pages being read, at most one for each queue; `read` is called with it."""

    def __init__(self, store: MailboxStore, clock: Clock, read: Read) -> None:
        self._store = store
        self._clock = clock
        self._read = read
        # Of the writer; needed where mailboxes are read from their start again.
        self.removing: Set[int] = frozenset()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, queue: DeliveryQueue) -> None:
        """Read what comes after the queue's cursor."""
        queue.begin_reading(self.removing)
        task = asyncio.get_running_loop().create_task(self._run(queue, queue.attachment))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, queue: DeliveryQueue, attachment: int) -> None:
        after, now = queue.cursor, int(self._clock.now() * 1000)
        page: Sequence[Envelope] | None = ()
        try:
            # Most devices have nothing waiting when they log in, and to find that out for many costs one query.
            if after or await self._store.has_any(queue.number):
                page = await self._store.list_page(
                    queue.number, after=after, now=now, limit=queue.page_size, slots=queue.slots
                )
        except Exception:
            log.exception("mailbox.read_failed", extra={"number": queue.number})
            page = None
        finally:
            queue.reading = False
        self._read(queue, attachment, page)

    async def close(self) -> None:
        """Read no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
