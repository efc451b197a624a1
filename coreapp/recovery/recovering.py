"""Recovering: messages that we could not decrypt and request again from their sender.

The webhook gets an error about such a message only if it does not arrive in time, and about many messages of one sender
only their number. The other direction, messages that a peer requests again from us, is `resending`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterator, Sequence

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.journal.change import Change
from coreapp.webhook import bodies, events
from tidings.aio.service import wait_for
from tidings.aio.use_limit import UseLimit
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.undecrypted import UndecryptedMessage
from tidings.wire.ids import MessageIds

log = logging.getLogger(__name__)

COUNTED = Counter("tidings_undecrypted_counted_total", "Undecryptable messages that are only counted")

MESSAGE_SECONDS = 300.0  # seconds that a requested message is waited for
INTERVAL = 5.0  # seconds between two passes
LIMIT = 10_000  # waiting messages; further ones are reported at once and may still arrive
REPORTED_EACH = 10  # errors about single messages of one sender per period; further ones are counted
PERIOD = 3600.0  # seconds
SUMMARY_SECONDS = 60.0  # seconds from the first counted message until their number is reported
MAX_SUMMARIES = 1_000  # senders whose messages are being counted; those of further senders are only logged
REMEMBERED = 10_000  # senders


@dataclasses.dataclass(frozen=True, slots=True)
class _Wait:
    """Row that is reported when it is due, on the monotonic clock: the wall clock may be set back."""

    row: UndecryptedMessage
    due: float  # seconds


@dataclasses.dataclass(eq=False, repr=False)
class UndecryptedReports:
    """Service that reports undecryptable messages of one shard, in the order in which they are given up."""

    name = "undecrypted"

    context: ShardContext
    left: dataclasses.InitVar[Sequence[UndecryptedMessage]]  # messages that the previous owner waited for

    def __post_init__(self, left: Sequence[UndecryptedMessage]) -> None:
        self._ids = MessageIds()
        self._waiting = {row.id: self._wait(row, MESSAGE_SECONDS) for row in left if not row.counted}
        # Counted messages, by sender.
        self._counted = {row.sender: self._wait(row, SUMMARY_SECONDS) for row in left if row.counted}
        self._reported: UseLimit[str] = UseLimit(
            self.context.clock, limit=REPORTED_EACH, period=PERIOD, remembered=REMEMBERED
        )

    def wait_for(self, message_id: str, sender: str, timestamp: int, request_id: str) -> UndecryptedMessage | None:
        """Wait for a requested message. Returns the row to commit with the request; None if too many are waited for."""
        if len(self._waiting) >= LIMIT:
            return None
        due = int((self.context.clock.now() + MESSAGE_SECONDS) * 1000)
        message = UndecryptedMessage(
            message_id, self.context.shard, self.context.account, sender, timestamp, due, request_id
        )
        self._waiting[message_id] = self._wait(message, MESSAGE_SECONDS)
        return message

    def _wait(self, row: UndecryptedMessage, longest: float) -> _Wait:
        return _Wait(row, self.context.clock.monotonic_at(row.due_at, longest=longest))

    def arrived(self, message_id: str) -> UndecryptedMessage | None:
        """Stop waiting for a message that arrived. Returns the row to delete; None if it was not waited for."""
        found = self._waiting.pop(message_id, None)
        return found.row if found is not None else None

    def admit_report(self, sender: str) -> bool:
        """Return whether one more message of this sender is reported by its id, and count it against the limit.
        Otherwise the caller must `count` it.
        """
        return self._reported.take(sender)

    def count(self, sender: str, timestamp: int) -> UndecryptedMessage | None:
        """Count one more message that is reported by number only. Returns the row to commit; None if it is only logged.

        timestamp: time of the message, Unix milliseconds
        """
        COUNTED.inc()
        before = self._counted.get(sender)
        if before is None:
            if len(self._counted) >= MAX_SUMMARIES:
                log.warning(
                    "message.undecryptable",
                    extra={"from": sender, "error": "too many senders of undecryptable messages"},
                )
                return None
            due = int((self.context.clock.now() + SUMMARY_SECONDS) * 1000)
            row = UndecryptedMessage(self._ids.new(), self.context.shard, self.context.account, sender, timestamp, due)
            before = self._wait(row, SUMMARY_SECONDS)
        counted = dataclasses.replace(before.row, counted=before.row.counted + 1)
        self._counted[sender] = _Wait(counted, before.due)
        return counted

    def error(self, message_id: str, sender: str, request_id: str) -> Sequence[Callback]:
        """Return the error callbacks about one undecryptable message."""
        details = f"the message {message_id} from {sender} could not be decrypted"
        return events.undecrypted(self.context, message_id, sender, details, request_id=request_id)

    @property
    def waiting(self) -> int:
        """Messages that could not be decrypted and were requested again."""
        return len(self._waiting)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.run_once()
            await wait_for(stop, INTERVAL)

    async def run_once(self) -> None:
        """Report the messages and summaries that are due."""
        now = self.context.clock.monotonic()
        summaries = [counted.row for counted in self._counted.values() if counted.due <= now]
        for counted in summaries:
            del self._counted[counted.sender]
        due = list(self._due())
        if not due and not summaries:
            return
        callbacks = [callback for counted in summaries for callback in self._summary(counted)]
        newly_counted: dict[str, UndecryptedMessage] = {}
        for message in due:
            del self._waiting[message.id]
            if self.admit_report(message.sender):
                callbacks += self.error(message.id, message.sender, message.request_id)
                continue
            counted_one = self.count(message.sender, message.timestamp)
            if counted_one is not None:
                newly_counted[message.sender] = counted_one
        log.info(
            "messages.not_decrypted", extra={"count": len(due), "counted": sum(each.counted for each in summaries)}
        )
        await self.context.journal.write(
            Change(
                self.context.account,
                new_undecrypted=list(newly_counted.values()),
                ended_undecrypted=[message.id for message in (*due, *summaries)],
                new_callbacks=callbacks,
            )
        )

    def _summary(self, counted: UndecryptedMessage) -> Sequence[Callback]:
        details = bodies.not_decrypted(counted.sender, counted.counted, counted.timestamp // 1000)
        return events.undecrypted(self.context, counted.id, counted.sender, details)

    def _due(self) -> Iterator[UndecryptedMessage]:
        now = self.context.clock.monotonic()
        for waiting in self._waiting.values():
            if waiting.due > now:
                return
            yield waiting.row
