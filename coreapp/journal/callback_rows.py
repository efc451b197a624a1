"""Rows of callbacks as the journal writes them, with their attempts for the history."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Protocol, TypeAlias

from tidings.storage.business import callback_history, callbacks, cloud_users, messages
from tidings.storage.business.callback_history import Attempt, EndedAttempt
from tidings.storage.database import Connection

log = logging.getLogger(__name__)

# Returns the stored form of callback bodies, in their order.
Seal = Callable[[Sequence[callbacks.Callback]], Sequence[bytes]]


class HistorySealer(Protocol):
    """Seals texts of the history."""

    def seal_attempts(self, found: Sequence[Attempt], /) -> Sequence[Attempt]:
        """Return the attempts in their order, with sealed responses."""
        ...

    def seal_texts(self, account: str, name: int, texts: bytes, /) -> bytes:
        """Return the sealed texts of a segment with this name."""
        ...


class CallbackFields(Protocol):
    """Fields of a change that concern callbacks."""

    account: str
    new_callbacks: Sequence[callbacks.Callback]
    finished_callbacks: Sequence[int]
    failed_callbacks: Sequence[callbacks.Callback]
    dead_callbacks: Sequence[callbacks.Callback]
    ended_callbacks: Sequence[EndedAttempt]
    attempts: Sequence[Attempt]
    seal: Seal
    history: HistorySealer | None


# A callback, and what seals its body.
_Sealable: TypeAlias = tuple[callbacks.Callback, Seal]


class CallbackRows:
    """Callback rows of a batch. A callback's failures always precede its end, and only the end is written."""

    def __init__(self, changes: Sequence[CallbackFields]) -> None:
        # By account, whose data key seals the texts of its history. Empty to keep none.
        self._sealers = {change.account: change.history for change in changes if change.history is not None}
        self._attempts = [attempt for change in changes for attempt in change.attempts]
        self._ended = [ended for change in changes for ended in change.ended_callbacks] if self._sealers else []
        self._new: list[_Sealable] = []
        self._finished: list[int] = []
        self._failed: dict[int, _Sealable] = {}
        self._dead: list[_Sealable] = []
        # `seq` of new callbacks that were found void, and not written.
        self.void: set[int] = set()
        for change in changes:
            self._new += [(callback, change.seal) for callback in change.new_callbacks]
            for callback in change.failed_callbacks:
                self._failed[callback.seq] = (callback, change.seal)
            for callback in change.dead_callbacks:
                self._failed.pop(callback.seq, None)
                self._dead.append((callback, change.seal))
            for seq in change.finished_callbacks:
                self._failed.pop(seq, None)
                self._finished.append(seq)

    def __bool__(self) -> bool:
        return bool(self._new or self._finished or self._failed or self._dead or self._ended)

    async def write(self, connection: Connection) -> None:
        await self._find_void(connection)
        new = [entry for entry in self._new if not (entry[0].volatile or entry[0].seq in self.void)]
        await callbacks.enqueue(connection, *_sealed(new))
        if users := {user for callback, _ in new for user in callback.users}:
            # Shards of several numbers write the same rows, and lock them in the same order.
            await cloud_users.add(connection, sorted(users, key=attrgetter("account", "user_id")))
        if self._sealers:
            await callback_history.add(connection, self._ended, self._seal_texts)
            await callback_history.save_attempts(connection, self._sealed_attempts())
        await callbacks.finish(connection, self._finished)
        await callbacks.reschedule(connection, *_sealed(self._failed.values()))
        await callbacks.mark_dead(connection, *_sealed(self._dead))

    def _seal_texts(self, account: str, name: int, texts: bytes) -> bytes:
        return self._sealers[account].seal_texts(account, name, texts)

    def _sealed_attempts(self) -> Sequence[Attempt]:
        sealed: list[Attempt] = []
        for account, found in itertools.groupby(self._attempts, attrgetter("account")):
            sealed += self._sealers[account].seal_attempts(list(found))
        return sealed

    async def _find_void(self, connection: Connection) -> None:
        """Find blank callbacks, and callbacks whose message's author was not in memory, unless the message was written
        by that author.
        """
        conditional = [callback for callback, _ in self._new if callback.author]
        authors: dict[tuple[str, str], str] = {}
        for account in {callback.account for callback in conditional}:
            subjects = [callback.subject for callback in conditional if callback.account == account]
            for row in await messages.list_progress(connection, account, subjects):
                if row.status in (messages.Status.RECEIVED, messages.Status.MARKED_READ):
                    authors[account, row.id] = row.peer
        foreign = {c.seq for c in conditional if authors.get((c.account, c.subject)) != c.author}
        if foreign:
            log.warning("callbacks.not_of_their_author", extra={"count": len(foreign)})
        self.void = foreign | {callback.seq for callback, _ in self._new if callback.blank}


def _sealed(entries: Iterable[_Sealable]) -> tuple[Sequence[callbacks.Callback], Sequence[bytes]]:
    """Return the callbacks and their bodies as they are stored."""
    rows: list[callbacks.Callback] = []
    bodies: list[bytes] = []
    for seal, group in itertools.groupby(entries, itemgetter(1)):
        found = [callback for callback, _ in group]
        rows += found
        bodies += seal(found)
    return rows, bodies
