"""Reader of the mailboxes of logged-in devices, a page at a time."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
from collections.abc import Callable, Sequence, Set

from network.routing.delivery_queue import DeliveryQueue
from network.routing.mailbox import SqlMailbox
from tidings.aio.clock import Clock
from tidings.storage.network.mailbox import Envelope

log = logging.getLogger(__name__)

# Maximum number of envelopes in one page.
PAGE = 200
# Pages that are read at the same time. When a node returns to its cluster, it reads the mailboxes of all its devices;
# 17,000 reads at once took 30 MB, which the process kept.
MOST_READS = 1000

# Called with (queue, its attachment when the read started, page; `None` when it could not be read).
Read = Callable[[DeliveryQueue, int, Sequence[Envelope] | None], None]


@dataclasses.dataclass(slots=True, eq=False)
class PageReader:
    """Page reads, at most one per queue and `MOST_READS` together; `read` is called with each page."""

    store: SqlMailbox
    clock: Clock
    read: Read
    # The writer's removals in progress, used where mailboxes are read from their start again.
    removing: Set[int] = frozenset()
    _tasks: set[asyncio.Task[None]] = dataclasses.field(default_factory=set)
    # Queues whose page is read when another read has ended, with their attachment. At most one entry per queue.
    _waiting: collections.deque[tuple[DeliveryQueue, int]] = dataclasses.field(default_factory=collections.deque)

    def start(self, queue: DeliveryQueue) -> None:
        """Read the page after the queue's cursor."""
        queue.begin_reading(self.removing)
        self._waiting.append((queue, queue.attachment))
        self._start_reads()

    def _start_reads(self) -> None:
        while self._waiting and len(self._tasks) < MOST_READS:
            task = asyncio.get_running_loop().create_task(self._read_page(*self._waiting.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._start_reads()

    async def _read_page(self, queue: DeliveryQueue, attachment: int) -> None:
        after, now = queue.cursor, self.clock.now_ms()
        page: Sequence[Envelope] | None = ()
        try:
            # Most devices have no waiting envelopes when they log in; finding that out for many takes one query.
            if after or await self.store.has_any(queue.number):
                page = await self.store.list_page(
                    queue.number, after=after, now=now, limit=queue.page_size, hash_slots=queue.hash_slots
                )
        except Exception:
            log.exception("mailbox.read_failed", extra={"number": queue.number})
            page = None
        finally:
            queue.reading = False
        self.read(queue, attachment, page)

    async def close(self) -> None:
        """Stop reading."""
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
