"""Messages that a Webapp asks for again because no answer came: each is accepted once, whoever owned the shard before.

The row of a message is the memory, since a Webapp names the messages that it asks for. Whoever holds the lease knows
that earlier owners commit nothing any more, so what has no row by then was not done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.errors import OutcomeUnknown
from coreapp.webhook.status_delay import StatusDelay
from tidings.runtime.batcher import Batcher
from tidings.runtime.lru import LRU
from tidings.storage import outages
from tidings.storage.business import messages, shards
from tidings.storage.database import Connection
from tidings.wire import core

PATIENCE = 4.0  # seconds that a caller waits for a database that is away
# Repeated questions that are remembered, in case that the first one is read after its repetition.
REMEMBERED = 20_000

REPEATED = Counter(
    "tidings_repeated_questions_total", "Messages that were asked for again, by what was found", ["found"]
)

Accept = Callable[[core.AcceptMessage], Awaitable[str]]


class MessageRequests:
    """Requests for messages of one shard. In memory are those in progress, as many as questions."""

    def __init__(self, context: ShardContext, accept: Accept, delay: StatusDelay) -> None:
        """accept: accepts a message, whose id it returns."""
        self._database = context.database
        self._lease = context.lease
        self._account = context.account
        self._accept = accept
        self._delay = delay
        # Those being accepted, and where one is asked for again meanwhile, what tells of its end.
        self._in_progress: dict[str, asyncio.Event | None] = {}
        self._repeated: LRU[str, bool] = LRU(REMEMBERED)
        self._reads: Batcher[str, bool] = Batcher("repeats-read", self._read, max_size=1000)
        self._done = REPEATED.labels("done")
        self._not_done = REPEATED.labels("not done")

    async def accept(self, question: core.AcceptMessage) -> str:
        """The id of the message, once it is on disk. Raises what accepting it raises, and `OutcomeUnknown`."""
        message_id = question.id
        if not message_id:
            return await self._accept(question)
        if question.repeated or message_id in self._repeated:
            self._repeated.put(message_id, True)
            if await self._is_done(message_id):
                self._done.inc()
                self._delay.answered(message_id)
                return message_id
            self._not_done.inc()
        self._in_progress[message_id] = None
        try:
            return await self._accept(question)
        finally:
            ended = self._in_progress.pop(message_id)
            if ended is not None:
                ended.set()

    async def close(self) -> None:
        """Answer those who ask already."""
        await self._reads.close()

    async def _is_done(self, message_id: str) -> bool:
        """Was the message accepted before? Nothing is in progress when it was not."""
        while True:
            while message_id in self._in_progress:
                ended = self._in_progress[message_id] = self._in_progress[message_id] or asyncio.Event()
                await ended.wait()
            try:
                if await outages.within(PATIENCE, self._reads.put(message_id)):
                    return True
            except Exception as error:
                if outages.is_outage(error):
                    raise OutcomeUnknown(repr(error)) from error
                raise
            # Another repetition may have begun while the table was read.
            if message_id not in self._in_progress:
                return False

    async def _read(self, message_ids: Sequence[str]) -> Sequence[bool]:
        async def work(connection: Connection) -> set[str]:
            rows = await messages.list_progress(connection, self._account, message_ids)
            return {row.id for row in rows}

        found = await self._database.persist(shards.fenced(self._lease, work), patience=PATIENCE)
        return [message_id in found for message_id in message_ids]
