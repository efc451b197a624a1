"""Direct posts: statuses that are posted before their change is committed.

A status that the webhook accepts at once needs no row in the table of callbacks: its change is committed with the post
in the history. Callbacks that are not accepted in time get rows in that commit, as all others do: after `SECONDS` in
which the webhook accepts none, and after `LONGEST_SECONDS` in any case.

Until the commit, a status can be derived again: its job or its delivery is still there. If the process is killed
before, the next owner of the shard posts the same status with the same event id a second time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence

from coreapp.journal.journal import Journal
from coreapp.quarantine import Quarantine
from coreapp.webhook.events import cloud_subject
from coreapp.webhook.queue import CallbackQueue
from coreapp.webhook.target import CurrentTargets
from tidings.aio.clock import Clock
from tidings.observability.hot_metrics import HotCounter
from tidings.storage.business.callback_history import EndedAttempt
from tidings.storage.business.callbacks import Callback

DIRECT = HotCounter(
    "tidings_callbacks_direct_total",
    "Statuses posted before their commit: accepted without a row, or written as a row",
    ["result"],
)
_ACCEPTED, _WRITTEN = DIRECT.labels("accepted"), DIRECT.labels("written")

SECONDS = 0.05  # seconds for which a commit waits for its posts, and again while the webhook accepts any
LONGEST_SECONDS = 0.25  # seconds for which a commit waits at most
PAUSE_SECONDS = 1.0  # seconds without direct posts after a batch during which the webhook accepted none
MAX_READY = 1000  # due callbacks that no worker has taken; with more, rows are written at once

# Commits a change. Called once with the callbacks that need rows, in the order of their `seq`, and the accepted ones.
Commit = Callable[[Sequence[Callback], Sequence[EndedAttempt]], None]


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class DirectBatch:
    """Callbacks of one change, which are posted before it is committed."""

    commit: Commit
    unwritten: dict[int, Callback]  # those without a row that are not accepted, by `seq`
    ends_by: float  # loop time
    left: int  # callbacks that had left the queue when its present time began
    timer: asyncio.TimerHandle = dataclasses.field(init=False)  # ends the batch
    accepted: list[EndedAttempt] = dataclasses.field(default_factory=list)
    was_late: bool = False  # whether it got its time again, because the process was suspended


@dataclasses.dataclass(eq=False, repr=False)
class DirectPosts:
    """Direct posts of one shard."""

    journal: Journal
    queue: CallbackQueue
    targets: CurrentTargets
    _: dataclasses.KW_ONLY
    quarantine: Quarantine
    clock: Clock

    def __post_init__(self) -> None:
        # Batches that are not committed yet, in their order.
        self._batches: dict[DirectBatch, None] = {}
        # Batches of the unwritten callbacks, by `seq`.
        self._by_seq: dict[int, DirectBatch] = {}
        # By subject: `seq` of its latest unwritten callback.
        self._latest: dict[str, int] = {}
        self._paused_until = 0.0  # loop time
        self._is_committing = False
        self._is_closed = False

    def post(self, callbacks: Sequence[Callback], commit: Commit, *, about: Collection[str]) -> DirectBatch | None:
        """Post new callbacks, and call `commit` afterwards. If they cannot be posted directly, all are committed with
        rows at once, and None is returned.

        callbacks: statuses that are derived again, with the same event ids, until `commit` has committed them
        about: ids of the messages whose statuses `commit` commits, whether they have callbacks or not
        """
        loop = asyncio.get_running_loop()
        if self._latest:
            # Earlier statuses of these messages are not derived again after this commit. Those of a subject with a new
            # callback are accepted before it; the others need rows now.
            self._end_those_about(about, accepted_first={callback.subject for callback in callbacks})
        if self._is_closed or loop.time() < self._paused_until or not self._admits(callbacks):
            commit(callbacks, ())
            return None
        self.journal.number(callbacks)
        unwritten = {callback.seq: callback for callback in callbacks}
        batch = DirectBatch(commit, unwritten, loop.time() + LONGEST_SECONDS, self.queue.left)
        batch.timer = loop.call_later(SECONDS, self._expire, batch)
        self._batches[batch] = None
        for callback in callbacks:
            self._by_seq[callback.seq], self._latest[callback.subject] = batch, callback.seq
        self.queue.offer_unwritten(callbacks)
        return batch

    def written(self, attempts: Sequence[EndedAttempt]) -> Sequence[EndedAttempt]:
        """Return the attempts at callbacks that have rows, or will have them."""
        return [attempt for attempt in attempts if attempt.callback.seq not in self._by_seq]

    def accepted(self, attempts: Sequence[EndedAttempt]) -> None:
        """Record that the webhook has accepted callbacks, of which some may have rows."""
        for attempt in attempts:
            batch = self._by_seq.get(attempt.callback.seq)
            if batch is None:
                continue
            _ACCEPTED.inc()
            del batch.unwritten[attempt.callback.seq]
            self._forget(attempt.callback)
            self.queue.accepted_unwritten(attempt.callback)
            batch.accepted.append(attempt)
            if not batch.unwritten:
                self.end(batch)

    def write(self, callbacks: Iterable[Callback]) -> None:
        """End the batches of those callbacks that are unwritten, so that they get rows now."""
        if self._by_seq:
            for callback in callbacks:
                if (batch := self._by_seq.get(callback.seq)) is not None:
                    self.end(batch)

    def end_before(self, message_ids: Collection[str]) -> None:
        """End the batches with unwritten statuses of these messages, because a change is about to be queued that has
        later ones.
        """
        if self._latest and not self._is_committing:
            self._end_those_about(message_ids)

    def _end_those_about(self, message_ids: Collection[str], *, accepted_first: Collection[str] = ()) -> None:
        """End the batches with unwritten statuses of these messages.

        accepted_first: subjects whose statuses may stay unwritten
        """
        for message_id in message_ids:
            for subject in (message_id, cloud_subject(message_id)):
                seq = self._latest.get(subject)
                if seq is not None and subject not in accepted_first:
                    self.end(self._by_seq[seq])

    def end(self, batch: DirectBatch) -> None:
        """Commit a batch now, with rows for its unwritten callbacks, after the earlier ones. A batch that has ended
        stays as it is.
        """
        if batch not in self._batches:
            return
        if batch.unwritten:
            # An earlier batch may have an earlier status of the same message.
            for earlier in list(itertools.takewhile(lambda other: other is not batch, self._batches)):
                self.end(earlier)
        del self._batches[batch]
        batch.timer.cancel()
        left = list(batch.unwritten.values())
        batch.unwritten.clear()
        for callback in left:
            self._forget(callback)
        _WRITTEN.inc(len(left))
        self._is_committing = True
        try:
            batch.commit(left, batch.accepted)
        except Exception as error:
            self.journal.fail(error)
        finally:
            self._is_committing = False

    def close(self) -> None:
        """End all batches. Later callbacks are not posted directly."""
        self._is_closed = True
        for batch in list(self._batches):
            self.end(batch)

    def _forget(self, callback: Callback) -> None:
        del self._by_seq[callback.seq]
        if self._latest[callback.subject] == callback.seq:
            del self._latest[callback.subject]

    def _expire(self, batch: DirectBatch) -> None:
        """End a batch whose time is over, unless it gets its time again."""
        loop = asyncio.get_running_loop()
        accepts = self.queue.left > batch.left
        if loop.time() - batch.timer.when() > SECONDS and not batch.was_late:
            batch.was_late = True
        elif not accepts or loop.time() >= batch.ends_by:
            if not accepts:
                self._paused_until = loop.time() + PAUSE_SECONDS
            self.end(batch)
            return
        batch.left = self.queue.left
        batch.timer = loop.call_later(SECONDS, self._expire, batch)

    def _admits(self, callbacks: Sequence[Callback]) -> bool:
        """Return whether all of these callbacks can be posted now, each after the earlier ones of its subject."""
        if not callbacks or self.quarantine.has_suspects or not self.queue.keeps_up(MAX_READY, new=len(callbacks)):
            return False
        now = self.clock.now_ms()
        v1, cloud = self.targets.v1().is_set, self.targets.cloud().is_set
        for callback in callbacks:
            has_target = cloud if callback.is_cloud else v1
            if not has_target or callback.due_at > now or self.journal.is_about_to_report(callback.subject):
                return False
            if not callback.event or callback.volatile or callback.users:
                return False
        return True
