"""Messages whose request a Webapp repeats because it got no response: each is accepted once, even if the shard's owner
changed.

The message's row is the record, because the Webapp assigns the ids. Earlier owners commit nothing after the lease was
taken, so a message without a row by then was not accepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.errors import OutcomeUnknown
from coreapp.webhook.status_delay import StatusDelay
from tidings.aio.batcher import Batcher
from tidings.aio.lru import LRU
from tidings.storage import outages
from tidings.storage.business import messages
from tidings.storage.database import Connection
from tidings.wire import core

RETRY_SECONDS = 4.0  # seconds that a caller waits for an unreachable database
# Repeated requests that are remembered, in case the first one is read after its repetition.
REMEMBERED = 20_000

REPEATED = Counter("tidings_repeated_requests_total", "Messages requested again, by result", ["found"])

# Accepts a message and returns its id.
Accept = Callable[[core.AcceptMessage], Awaitable[str]]


class MessageRequests:
    """Requests for messages of one shard. Memory holds one entry per request in progress."""

    def __init__(self, context: ShardContext, accept: Accept, delay: StatusDelay) -> None:
        self._context = context
        self._accept = accept
        self._delay = delay
        # Message ids being accepted. The event is set at the end if a repetition waits for it; None while no repetition
        # waits.
        self._in_progress: dict[str, asyncio.Event | None] = {}
        self._repeated: LRU[str, bool] = LRU(REMEMBERED)
        self._reads: Batcher[str, bool] = Batcher("repeats-read", self._read, max_size=1000)
        self._done = REPEATED.labels("done")
        self._not_done = REPEATED.labels("not done")

    async def accept(self, request: core.AcceptMessage) -> str:
        """Accept a message unless an earlier request did. Returns its id once it is on disk. Raises the errors of
        `accept`, and `OutcomeUnknown`.
        """
        message_id = request.id
        if not message_id:
            return await self._accept(request)
        if request.repeated or message_id in self._repeated:
            self._repeated.put(message_id, True)
            if await self._is_done(message_id):
                self._done.inc()
                self._delay.responded(message_id)
                return message_id
            self._not_done.inc()
        self._in_progress[message_id] = None
        try:
            return await self._accept(request)
        finally:
            ended = self._in_progress.pop(message_id)
            if ended is not None:
                ended.set()

    async def close(self) -> None:
        """Accept no more requests, and finish the pending database accesses that requests wait for."""
        await self._reads.close()

    async def _is_done(self, message_id: str) -> bool:
        """Return whether the message was accepted before. If it was not, no request for it is in progress."""
        while True:
            while message_id in self._in_progress:
                ended = self._in_progress[message_id] = self._in_progress[message_id] or asyncio.Event()
                await ended.wait()
            try:
                if await outages.within(RETRY_SECONDS, self._reads.put(message_id)):
                    return True
            except Exception as error:
                if outages.is_outage(error):
                    raise OutcomeUnknown(repr(error)) from error
                raise
            # Another repetition may have started while the table was read.
            if message_id not in self._in_progress:
                return False

    async def _read(self, message_ids: Sequence[str]) -> Sequence[bool]:
        async def work(connection: Connection) -> set[str]:
            rows = await messages.list_progress(connection, self._context.account, message_ids)
            return {row.id for row in rows}

        found = await self._context.persist(work, retry_seconds=RETRY_SECONDS)
        return [message_id in found for message_id in message_ids]
