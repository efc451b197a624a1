"""Progress of each message. Statuses only advance, and none is skipped."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from coreapp.conversations import Conversation
from tidings.aio import lru
from tidings.storage.business.messages import Progress, Status

CACHED = 100_000  # messages
_STEPS = (Status.SENT, Status.DELIVERED, Status.READ)


def steps_between(current: Status, reached: Status) -> Sequence[Status]:
    """Return the statuses to report when a message at `current` is found to have reached `reached`.

    A receipt can overtake the previous one, so skipped statuses are reported with it. Earlier or final statuses are not
    reported again. A failed message stays failed, and a delivered one cannot fail. A message from a recipient to the
    business has no statuses.
    """
    if current in (Status.FAILED, Status.RECEIVED, Status.MARKED_READ):
        return ()
    if reached is Status.FAILED:
        return (Status.FAILED,) if current < Status.DELIVERED else ()
    return [step for step in _STEPS if current < step <= reached]


class TrackedMessage(lru.Entry):
    """State of one message.

    peer: other party of the message; empty while nothing is known
    status: `RECEIVED` while nothing is known
    kind: type of the message
    category: category of its template; empty for none
    request_id: id of the request that created it; empty for none
    traceparent: its trace; empty for none
    callback_data: text of the business that its statuses return; None for none
    conversation: the one that its status sent named, until the next status names it; None if it must be computed
    """

    __slots__ = ("callback_data", "category", "conversation", "kind", "peer", "request_id", "status", "traceparent")

    def __init__(self) -> None:
        self.peer = self.kind = self.request_id = self.category = self.traceparent = ""
        self.status = Status.RECEIVED
        self.callback_data: str | None = None
        self.conversation: Conversation | None = None

    def is_known(self) -> bool:
        return bool(self.peer)


class StatusTracker:
    """Latest status of the messages in progress.

    All held messages are in memory: those with a job, and those that an uncommitted change or an event being handled
    concerns. At most `CACHED` others are cached, least recently used evicted first. Evicted entries are on disk and are
    read again, so no status is lost or reported twice.
    """

    def __init__(self) -> None:
        self._entries: lru.PinnedCache[str, TrackedMessage] = lru.PinnedCache(TrackedMessage, CACHED)
        self._held = self._entries.pinned

    def hold(self, ids: Iterable[str]) -> None:
        """Keep these messages in memory until each has been released as often as it was held."""
        self._entries.pin(ids)

    def release(self, ids: Iterable[str]) -> None:
        """Release one hold of each message."""
        self._entries.unpin(ids)

    def evict(self) -> None:
        """Drop all messages from memory that are not held."""
        self._entries.clear()

    def remember(
        self, message_id: str, peer: str, status: Status, kind: str, request_id: str = "", category: str = ""
    ) -> None:
        """Record a new message, which must be held."""
        held = self._held[message_id]
        # There are few kinds and categories; each string is kept once.
        held.peer, held.status, held.kind = peer, status, sys.intern(kind)
        held.request_id, held.category = request_id, sys.intern(category)

    def keep_callback_data(self, message_id: str, text: str | None) -> None:
        """Record the text that the statuses of a message, which must be held, return to the business."""
        self._held[message_id].callback_data = text

    def trace(self, message_id: str, traceparent: str) -> None:
        """Record the trace of a message, which must be held. It is not on disk, so it is lost on eviction."""
        self._held[message_id].traceparent = traceparent

    def load(self, rows: Iterable[Progress]) -> None:
        """Load database rows of held messages of which nothing was known."""
        for row in rows:
            if not self._held[row.id].peer:
                self.remember(row.id, row.peer, Status(row.status), row.kind, row.request_id, row.category)
                self.keep_callback_data(row.id, row.callback_data)

    def __contains__(self, message_id: str) -> bool:
        return bool(self.peer(message_id))

    def peer(self, message_id: str) -> str | None:
        """Return the other party of the message; None if it is not known."""
        entry = self._entries.get(message_id)
        return entry.peer or None if entry is not None else None

    def held(self, message_id: str) -> TrackedMessage:
        """Return the state of a held message."""
        return self._held[message_id]

    def is_unsent(self, message_id: str) -> bool:
        """Return whether this is a held message of the business that was accepted and not sent."""
        held = self._held.get(message_id)
        return held is not None and held.is_known() and held.status is Status.ACCEPTED

    def advance(self, message_id: str, reached: Status) -> Sequence[Status]:
        """Record that a held message reached a status. Returns the statuses to report, none for an unknown message."""
        held = self._held[message_id]
        if not held.peer:
            return ()
        steps = steps_between(held.status, reached)
        if steps:
            held.status = steps[-1]
        return steps
