"""How far each message got, and what a receipt adds to that: statuses only go forward and none is left out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from tidings.runtime import pinned
from tidings.storage.business.messages import Progress, Status

_STEPS = (Status.SENT, Status.DELIVERED, Status.READ)


def steps_between(current: Status, reached: Status) -> Sequence[Status]:
    """The statuses to report when a message at `current` is found to have reached `reached`.

    A receipt can overtake the one before it, so the steps that were skipped are reported with it; what lies behind
    or is final already is not reported again. A message that failed stays failed; one that was delivered cannot fail,
    and one from a recipient to the business has no statuses.
    """
    if current in (Status.FAILED, Status.RECEIVED, Status.MARKED_READ):
        return ()
    if reached is Status.FAILED:
        return (Status.FAILED,) if current < Status.DELIVERED else ()
    return [step for step in _STEPS if current < step <= reached]


class _Entry(pinned.Entry):
    """What is known of one message; peer: empty while nothing is."""

    __slots__ = ("category", "kind", "peer", "request_id", "status", "traceparent")

    def __init__(self) -> None:
        self.peer = self.kind = self.request_id = self.category = self.traceparent = ""
        self.status = Status.RECEIVED

    def is_known(self) -> bool:
        return bool(self.peer)


class StatusTracker:
    """The latest status of the messages in motion.

    Those that are held are all there: the ones with a job, and the ones that a change in the journal or an event being
    handled is about. Of the others at most `limit`, the longest untouched forgotten first: what is forgotten is on disk
    and is read again, so a status is neither lost nor reported twice for want of memory.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._entries: pinned.PinnedCache[str, _Entry] = pinned.PinnedCache(_Entry, limit)
        self._held = self._entries.pinned

    def hold(self, ids: Iterable[str]) -> None:
        """Forget nothing about these, until as many `release`."""
        self._entries.pin(ids)

    def release(self, ids: Iterable[str]) -> None:
        """Take one hold of each back."""
        self._entries.unpin(ids)

    def forget(self) -> None:
        """Drop from memory what is not held."""
        self._entries.clear()

    def remember(
        self, message_id: str, peer: str, status: Status, kind: str, request_id: str = "", category: str = ""
    ) -> None:
        """A new message, which must be held."""
        held = self._held[message_id]
        # There are few kinds and categories; each is kept once.
        held.peer, held.status, held.kind = peer, status, sys.intern(kind)
        held.request_id, held.category = request_id, sys.intern(category)

    def trace(self, message_id: str, traceparent: str) -> None:
        """The trace that a message is in, which must be held; not on disk with it, so forgotten with the rest."""
        self._held[message_id].traceparent = traceparent

    def load(self, rows: Iterable[Progress]) -> None:
        """Take over what the database says of messages that are held, and of which nothing was known."""
        for row in rows:
            if not self._held[row.id].peer:
                self.remember(row.id, row.peer, Status(row.status), row.kind, row.request_id, row.category)

    def __contains__(self, message_id: str) -> bool:
        return bool(self.peer(message_id))

    def peer(self, message_id: str) -> str | None:
        """Whom the message is to or from, when that is known."""
        entry = self._entries.get(message_id)
        return entry.peer or None if entry is not None else None

    def status(self, message_id: str) -> Status:
        """How far a message that is held got; `RECEIVED` when nothing is known of it."""
        return self._held[message_id].status

    def is_unsent(self, message_id: str) -> bool:
        """Is this a message of the business that is held, and was accepted and nothing more?"""
        held = self._held.get(message_id)
        return held is not None and held.is_known() and held.status is Status.ACCEPTED

    def kind(self, message_id: str) -> str:
        """The type of a message that is held; empty when nothing is known of it."""
        return self._held[message_id].kind

    def category(self, message_id: str) -> str:
        """Of the template that a message, which must be held, was made from; empty for none."""
        return self._held[message_id].category

    def request_id(self, message_id: str) -> str:
        """The request that a message, which must be held, was made by; empty for none."""
        return self._held[message_id].request_id

    def traceparent(self, message_id: str) -> str:
        """The trace that a message, which must be held, is in; empty for none."""
        return self._held[message_id].traceparent

    def advance(self, message_id: str, reached: Status) -> Sequence[Status]:
        """Note that a message, which must be held, reached a status; returns the statuses to report.

        None are when it is unknown.
        """
        held = self._held[message_id]
        if not held.peer:
            return ()
        steps = steps_between(held.status, reached)
        if steps:
            held.status = steps[-1]
        return steps
