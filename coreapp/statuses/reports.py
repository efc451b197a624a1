"""From «this message reached that status» to the rows that say so: the status and its callbacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Protocol

from coreapp import ids, statistics
from coreapp.conversations import Names, conversation_of, origin_of
from coreapp.statuses.rows import StatusRows
from coreapp.statuses.tracker import StatusTracker
from coreapp.webhook import bodies
from tidings.runtime.clock import Clock
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.messages import Status
from tidings.wire import addresses

# message id, status reached, Unix seconds or `None` for now, error code and details for `FAILED`
Reached = tuple[str, Status, int | None, tuple[int, str] | None]


class Preferences(Protocol):
    """What the business wants to hear, from its application settings."""

    @property
    def persist(self) -> bool: ...

    @property
    def conversations(self) -> bool:
        """Do statuses say to which conversation the message belongs, and what it is billed as?"""
        ...

    def wants(self, status: Status) -> bool: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What to write."""

    statuses: dict[str, Status]
    callbacks: list[Callback]


class StatusReports:
    """Turns events into reports. The events' messages must be in the progress book; unknown ones report nothing."""

    def __init__(
        self,
        progress: StatusTracker,
        preferences: Callable[[], Preferences],
        rows: StatusRows,
        clock: Clock,
        *,
        account: str,
        names: Names = Names.CATEGORY,
    ) -> None:
        """names: of conversations."""
        self._progress = progress
        self._wishes = preferences
        self._clock = clock
        self._account = account
        self._names = names
        self._rows = rows

    @property
    def persist(self) -> bool:
        """Are callbacks kept on disk?"""
        return self._wishes().persist

    def report(self, events: Iterable[Reached]) -> Report:
        """The rows for these events, in their order; each status of a message at most once."""
        preferences = self._wishes()
        now = self._clock.now()
        # Where both are posted, the first of the two that come after `sent`.
        second = Status.DELIVERED if preferences.wants(Status.DELIVERED) else Status.READ
        report = Report({}, [])
        for message_id, reached, timestamp, error in events:
            steps = self._progress.advance(message_id, reached)
            if not steps:
                continue
            report.statuses[message_id] = steps[-1]
            peer = self._progress.peer(message_id) or ""
            kind, accepted_at = self._progress.kind(message_id), ids.made_at(message_id) or now
            for step in steps:
                statistics.reached(step, kind, now - accepted_at)
                if not preferences.wants(step) or self._rows.drops():
                    continue
                conversation = None
                if (
                    preferences.conversations
                    and not addresses.names_group(peer)
                    and (step is Status.SENT or step is second)
                ):
                    origin = origin_of(kind, self._progress.category(message_id), self._names)
                    conversation = conversation_of(self._account, peer, origin, accepted_at)
                body = bodies.status(message_id, peer, step, int(timestamp or now), error, conversation)
                report.callbacks.append(self._rows.make(message_id, body, int(now * 1000)))
        return report
