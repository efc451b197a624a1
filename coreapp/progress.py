"""How far each message got, and what a receipt adds to that: statuses only go forward and none is left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidings.runtime.lru import LRU
from tidings.storage.messages import Progress, Status

_STEPS = (Status.SENT, Status.DELIVERED, Status.READ)


def steps_between(current: Status, reached: Status) -> Sequence[Status]:
    """The statuses to report when a message at `current` is found to have reached `reached`.

    A receipt can overtake the one before it, so the steps that were skipped are reported with it; what lies behind
    or is final already is not reported again. A message that failed stays failed; one that was read cannot fail.
    """
    if current is Status.FAILED or current is Status.READ:
        return ()
    if reached is Status.FAILED:
        return (Status.FAILED,)
    return [step for step in _STEPS if current < step <= reached]


class ProgressBook:
    """The latest status of the messages in motion: at most `limit`, the longest untouched forgotten first.

    What is forgotten is read from the database again, so a status is never reported twice for want of memory.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._entries: LRU[str, tuple[str, Status]] = LRU(limit)

    def remember(self, message_id: str, peer: str, status: Status) -> None:
        """A new message, or one as the database has it."""
        self._entries.put(message_id, (peer, status))

    def load(self, rows: Iterable[Progress]) -> None:
        """Take over what the database says of messages that are not held."""
        for row in rows:
            if row.id not in self._entries:
                self._entries.put(row.id, (row.peer, Status(row.status)))

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._entries

    def peer(self, message_id: str) -> str | None:
        """Whom the message is to, when it is held."""
        entry = self._entries.get(message_id)
        return entry[0] if entry else None

    def advance(self, message_id: str, reached: Status) -> Sequence[Status]:
        """Note that a message reached a status; returns the statuses to report, none if it is unknown."""
        entry = self._entries.get(message_id)
        if entry is None:
            return ()
        steps = steps_between(entry[1], reached)
        if steps:
            self._entries.put(message_id, (entry[0], steps[-1]))
        return steps
