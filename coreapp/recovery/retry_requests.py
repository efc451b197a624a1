"""Messages that were asked for again: the webhook hears of one that it could not be decrypted only when it does not
come in time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from prometheus_client import Gauge

from coreapp.context import ShardContext
from coreapp.journal import Change
from coreapp.webhook import bodies
from coreapp.webhook.rows import CallbackRows
from tidings.runtime.service import wait_for
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.undecrypted import Undecrypted
from tidings.wire import codes

log = logging.getLogger(__name__)

WAITING = Gauge("tidings_undecrypted_messages", "Messages that could not be decrypted and were asked for again")

PATIENCE_SECONDS = 300.0
INTERVAL = 5.0  # seconds between two looks
LIMIT = 10_000  # messages; of one more the webhook hears at once, and it may come all the same


class RetryRequests:
    """Those of one shard, in the order in which they are given up. A service."""

    name = "undecrypted"

    def __init__(
        self,
        context: ShardContext,
        rows: CallbackRows,
        left: Sequence[Undecrypted],
    ) -> None:
        """left: what the last owner waited for."""
        self._journal = context.journal
        self._clock = context.clock
        self._account = context.account
        self._shard = context.shard
        self._rows = rows
        self._waiting = {message.id: message for message in left}

    def wait_for(self, message_id: str, sender: str, timestamp: int, request_id: str) -> Undecrypted | None:
        """To be committed with the request for it; `None` when too many are waited for."""
        if len(self._waiting) >= LIMIT:
            return None
        due = int((self._clock.now() + PATIENCE_SECONDS) * 1000)
        message = Undecrypted(message_id, self._shard, self._account, sender, timestamp, due, request_id)
        self._waiting[message_id] = message
        return message

    def came(self, message_id: str) -> Undecrypted | None:
        """It is here, and no longer waited for, as is to be committed; `None` when it was not waited for."""
        return self._waiting.pop(message_id, None)

    def error(self, message_id: str, sender: str, request_id: str) -> Callback:
        """What the webhook hears of one that nobody can read."""
        body = bodies.errors(codes.MESSAGE_FAILED, f"the message {message_id} from {sender} could not be decrypted")
        return self._rows.make(message_id, "error", body, request_id=request_id)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.run_once()
            await wait_for(stop, INTERVAL)

    async def run_once(self) -> None:
        """Give up what is due."""
        WAITING.set(len(self._waiting))
        due = list(self._due())
        if not due:
            return
        for message in due:
            del self._waiting[message.id]
        log.info("messages.not_decrypted", extra={"count": len(due)})
        await self._journal.write(
            Change(
                self._account,
                ended_undecrypted=[message.id for message in due],
                new_callbacks=[self.error(message.id, message.sender, message.request_id) for message in due],
            )
        )

    def _due(self) -> Iterator[Undecrypted]:
        now = self._clock.now() * 1000
        for message in self._waiting.values():
            if message.due_at > now:
                return
            yield message
