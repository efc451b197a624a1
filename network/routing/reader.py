"""Reader of the mailboxes of logged-in devices, a page at a time."""

from __future__ import annotations

import asyncio
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

# Called with (queue, its attachment when the read started, page; `None` when it could not be read).
Read = Callable[[DeliveryQueue, int, Sequence[Envelope] | None], None]


@dataclasses.dataclass(slots=True, eq=False)
class PageReader:
    """Page reads, at most one per queue; `read` is called with each page."""

    store: SqlMailbox
    clock: Clock
    read: Read
    # The writer's removals in progress, used where mailboxes are read from their start again.
    removing: Set[int] = frozenset()
    _tasks: set[asyncio.Task[None]] = dataclasses.field(default_factory=set)

    def start(self, queue: DeliveryQueue) -> None:
        """Read the page after the queue's cursor."""
        queue.begin_reading(self.removing)
        task = asyncio.get_running_loop().create_task(self._run(queue, queue.attachment))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, queue: DeliveryQueue, attachment: int) -> None:
        after, now = queue.cursor, self.clock.now_ms()
        page: Sequence[Envelope] | None = ()
        try:
            # Most devices have no waiting envelopes when they log in; finding that out for many takes one query.
            if after or await self.store.has_any(queue.number):
                page = await self.store.list_page(
                    queue.number, after=after, now=now, limit=queue.page_size, slots=queue.slots
                )
        except Exception:
            log.exception("mailbox.read_failed", extra={"number": queue.number})
            page = None
        finally:
            queue.reading = False
        self.read(queue, attachment, page)

    async def close(self) -> None:
        """Stop reading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
