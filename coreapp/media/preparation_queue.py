"""Messages that wait until their files are stored in the network, and later messages to the same peer.

They are on disk as `NEW` jobs, with their content as the business sent it. A new owner resumes them the same way.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
from collections.abc import Callable, Sequence

from coreapp.errors import OutcomeUnknown
from coreapp.media import pointers
from coreapp.media.errors import MediaFailed
from coreapp.media.preparation import Preparation
from tidings.aio import service
from tidings.storage import outages
from tidings.storage.business.jobs import Job
from tidings.storage.business.shards import LeaseLost
from tidings.wire import codes

log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True, eq=False)
class _Waiting:
    """A message in the queue."""

    job: Job
    content: bytes
    prepared: asyncio.Task[bytes] | None  # running preparation; None for a message without files


@dataclasses.dataclass(eq=False, repr=False)
class PreparationQueue:
    """Messages of one account that are not ready to be encrypted. Bounded by the job queue's limit.

    Files of all messages are fetched concurrently, up to the limits of the origins. Messages to one peer leave in
    order.
    """

    preparation: Preparation
    _: dataclasses.KW_ONLY
    forward: Callable[[Job, bytes], None]  # called with a job and its content when it is ready to be encrypted
    fail: Callable[[Sequence[Job], int, str], None]  # called with jobs, error code and details, to end the jobs
    held_up: Callable[[Sequence[str], str], None]  # called with job ids and the reason after a failed attempt
    # called with the error when messages are left on disk only, so that the shard must be reopened
    broken: Callable[[BaseException], None]

    def __post_init__(self) -> None:
        self._queues: dict[str, collections.deque[_Waiting]] = {}
        self._count = 0
        # Messages that have left the queue.
        self.left = 0
        self._closed = False

    @property
    def waiting(self) -> int:
        """Messages that wait for a file, or behind a message that does."""
        return self._count

    @property
    def oldest(self) -> int | None:
        """Acceptance time of the oldest of them, Unix milliseconds; None for an empty queue."""
        return min((queue[0].job.created_at for queue in self._queues.values()), default=None)

    def ready(self, peer: str, content: bytes, *, has_media: bool) -> bytes | None:
        """Return the content if it may be encrypted now; None if the message must `enter` the queue."""
        if peer in self._queues:
            return None
        return self.preparation.at_once(content) if has_media else content

    def enter(self, job: Job, content: bytes, *, has_media: bool) -> None:
        """Queue a job that is on disk as `NEW`, or already in the journal.

        It must enter before any other message is accepted, so that later messages to its peer queue behind it.
        """
        if self._closed:
            return
        entry = _Waiting(job, content, None)
        if has_media:
            preparing = self.preparation.prepare(content, lambda why: self._note(entry, why))
            entry.prepared = asyncio.create_task(preparing, name=f"media of {job.id}")
            entry.prepared.add_done_callback(lambda _: self._drain(job.peer))
        self._queues.setdefault(job.peer, collections.deque()).append(entry)
        self._count += 1

    def resume(self, job: Job, content: bytes) -> None:
        """Resume a `NEW` job of an earlier owner. Called in the order of acceptance."""
        has_media = pointers.has_sources(content)
        if has_media or job.peer in self._queues:
            self.enter(job, content, has_media=has_media)
        else:
            self.forward(job, content)

    def remove(self, chosen: Callable[[Job], bool]) -> Sequence[Job]:
        """Remove the chosen jobs from the queue and return them; the caller ends them. The jobs behind them
        continue.
        """
        taken = []
        for peer, queue in list(self._queues.items()):
            found = [entry for entry in queue if chosen(entry.job)]
            if not found:
                continue
            for entry in found:
                queue.remove(entry)
                if entry.prepared is not None:
                    # The preparation belongs to this message alone. A transfer that other messages need continues.
                    entry.prepared.cancel()
            self._count -= len(found)
            self.left += len(found)
            taken += [entry.job for entry in found]
            if queue:
                self._drain(peer)
            else:
                del self._queues[peer]
        return taken

    async def close(self) -> None:
        """Leave the waiting messages to the next owner; they are on disk."""
        self._closed = True
        tasks = [entry.prepared for queue in self._queues.values() for entry in queue if entry.prepared is not None]
        self._queues.clear()
        await service.cancel(tasks)

    def _note(self, entry: _Waiting, why: str) -> None:
        # A cancelled preparation has left the queue and may not have noticed yet.
        if entry.prepared is not None and not entry.prepared.cancelling():
            self.held_up((entry.job.id,), why)

    def _drain(self, peer: str) -> None:
        """Release the messages at the head of the peer's queue that need not wait."""
        queue = self._queues.get(peer)
        while queue and (queue[0].prepared is None or queue[0].prepared.done()):
            entry = queue.popleft()
            self._count -= 1
            self.left += 1
            if not queue:
                del self._queues[peer]
            try:
                self._release(entry)
            except Exception as error:
                # Such as `BatcherFull`. The messages are on disk, and keep their order when the shard is reopened.
                self.broken(error)
                return

    def _release(self, entry: _Waiting) -> None:
        # An error's traceback refers to the entry, and so to the task and the error: a cycle with all that was read,
        # which would stay until the interpreter GC runs.
        prepared, entry.prepared = entry.prepared, None
        if prepared is None:
            self.forward(entry.job, entry.content)
        elif prepared.cancelled():
            self.broken(RuntimeError("the preparation of a message was cancelled"))
        elif (error := prepared.exception()) is None:
            self.forward(entry.job, prepared.result())
        elif isinstance(error, MediaFailed):
            log.info(
                "message.failed",
                extra={"id": entry.job.id, "to": entry.job.peer, "code": error.code, "detail": error.details},
            )
            self.fail([entry.job], error.code, error.details)
        elif outages.is_outage(error) or isinstance(error, LeaseLost | OutcomeUnknown):
            log.error("media.broken", extra={"id": entry.job.id, "error": repr(error)})
            self.broken(error)
        else:
            # An error about one message must not end the shard repeatedly.
            log.error("media.unexpected", extra={"id": entry.job.id}, exc_info=error)
            self.fail([entry.job], codes.MESSAGE_FAILED, "the file cannot be prepared")
