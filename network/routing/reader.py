"""Reads the mailboxes of devices that have logged in, a page at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from network.routing.delivery_queue import Lane
from network.routing.mailbox import MailboxStore
from tidings.runtime.clock import Clock
from tidings.storage.network.mailbox import Envelope

log = logging.getLogger(__name__)

# Envelopes in one page at most.
PAGE = 200

# (the lane, its attachment when the reading began, the page or `None` when it could not be read)
Read = Callable[[Lane, int, Sequence[Envelope] | None], None]


class Reader:
    """At most one page of each lane is being read; `read` is called with it."""

    def __init__(self, store: MailboxStore, clock: Clock, read: Read) -> None:
        self._store = store
        self._clock = clock
        self._read = read
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, lane: Lane) -> None:
        """Read what comes after the lane's cursor."""
        lane.begin_reading()
        task = asyncio.get_running_loop().create_task(self._run(lane, lane.attachment))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, lane: Lane, attachment: int) -> None:
        after, now = lane.cursor, int(self._clock.now() * 1000)
        page: Sequence[Envelope] | None = ()
        try:
            # Most devices have nothing waiting when they log in, and to find that out for many costs one query.
            if after or await self._store.has_any(lane.number):
                page = await self._store.list_page(lane.number, after=after, now=now, limit=lane.page_size)
        except Exception:
            log.exception("mailbox.read_failed", extra={"number": lane.number})
            page = None
        finally:
            lane.reading = False
        self._read(lane, attachment, page)

    async def close(self) -> None:
        """Read no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
