"""What the console asks about the past of a message or callback, and the answers from the tables that exist."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from tidings.storage.business import console_views, queue_views
from tidings.storage.business.console_views import CallbackChoice, ListPage, MessageEntry
from tidings.storage.business.messages import Status
from tidings.storage.business.queue_views import CallbackView
from tidings.storage.database import Database

# Callbacks of one message that its page lists.
MAX_CALLBACKS = 50
_HIGHEST = (1 << 63) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class TimelineStep:
    """One step of a message."""

    name: str  # name in the table `timeline` of `strings.toml`
    at: int = 0  # Unix milliseconds; 0 when it was not recorded
    detail: str = ""
    is_failure: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptEntry:
    """One attempt to post a callback."""

    at: int  # Unix milliseconds; 0 when it was not recorded
    number: int
    error: str = ""
    duration_ms: int | None = None
    status: int | None = None  # HTTP status; `None` without a response
    response: str = ""  # first KiB of the response


class HistoryQueries(Protocol):
    """Past of messages and callbacks."""

    keeps_done: bool  # whether callbacks are listed after they were acknowledged

    async def timeline(self, account: str, message: MessageEntry, shards: Sequence[int]) -> Sequence[TimelineStep]: ...

    async def attempts(self, account: str, callback: CallbackView) -> Sequence[AttemptEntry]: ...

    async def callbacks_of(self, account: str, message_id: str, shards: Sequence[int]) -> Sequence[CallbackView]: ...

    async def list_done(self, choice: CallbackChoice, *, before: int, limit: int) -> ListPage[CallbackView, int]: ...


class PresentState:
    """History from the queues and the statuses alone: the last attempt of a callback, and the times of the first and
    the present status of a message.
    """

    keeps_done = False

    def __init__(self, database: Database) -> None:
        self._database = database

    async def timeline(self, account: str, message: MessageEntry, shards: Sequence[int]) -> Sequence[TimelineStep]:
        """Return the steps of a message, as far as they are known."""
        if message.status in (Status.RECEIVED, Status.MARKED_READ):
            steps = [TimelineStep("received", message.created_at)]
            return [*steps, TimelineStep("marked_read")] if message.status == Status.MARKED_READ else steps
        steps = [TimelineStep("accepted", message.created_at)]
        steps += await self._of_job(message)
        for status in (Status.SENT, Status.DELIVERED, Status.READ):
            if status <= message.status <= Status.READ:
                steps.append(TimelineStep(status.name.lower()))
        if message.status == Status.FAILED:
            steps.append(TimelineStep("failed", is_failure=True))
        for callback in reversed(await self.callbacks_of(account, message.id, shards)):
            steps.append(
                TimelineStep(
                    f"callback_{callback.status}",
                    callback.created_at,
                    f"{callback.kind}, {callback.event_id}",
                    is_failure=callback.status != queue_views.PENDING,
                )
            )
        return steps

    async def _of_job(self, message: MessageEntry) -> Sequence[TimelineStep]:
        if message.status != Status.ACCEPTED:
            return []
        async with self._database.reading() as connection:
            found = await queue_views.list_jobs_of(connection, [message.id])
        steps = []
        for job in found:
            if job.status == queue_views.ENCRYPTED:
                steps.append(TimelineStep("encrypted"))
            if job.attempts:
                detail = f"{job.attempts} × {job.last_error}"
                steps.append(TimelineStep("attempt_failed", job.tried_at, detail, is_failure=True))
        return steps

    async def attempts(self, account: str, callback: CallbackView) -> Sequence[AttemptEntry]:
        """Return the last attempt of a callback."""
        return [AttemptEntry(0, callback.attempt, callback.last_error)] if callback.attempt else []

    async def callbacks_of(self, account: str, message_id: str, shards: Sequence[int]) -> Sequence[CallbackView]:
        """Return the stored callbacks about a message, newest first."""
        choice = CallbackChoice(account, shards, message=message_id)
        async with self._database.reading() as connection:
            page = await console_views.list_callbacks(connection, choice, before=_HIGHEST, limit=MAX_CALLBACKS)
        return page.rows

    async def list_done(self, choice: CallbackChoice, *, before: int, limit: int) -> ListPage[CallbackView, int]:
        """Return no callback: they are deleted when the webhook acknowledges them."""
        return ListPage([], None)
