"""A body for the webhook as the row that the journal writes."""

from __future__ import annotations

from collections.abc import Callable

from tidings.runtime.clock import Clock
from tidings.storage.business.callbacks import Callback


class CallbackRows:
    """Makes those of one account."""

    def __init__(self, persist: Callable[[], bool], clock: Clock, *, account: str, shard: int) -> None:
        """persist(): are callbacks kept on disk?"""
        self._persist = persist
        self._clock = clock
        self._account = account
        self._shard = shard

    def make(
        self, subject: str, kind: str, body: bytes, *, request_id: str = "", at: int | None = None, due_at: int = 0
    ) -> Callback:
        """A callback to be committed with what it tells of; the journal gives it its `seq`.

        subject: the message or event that it is about, whose callbacks are posted in order; at: Unix milliseconds, now
        if `None`; due_at: not to be posted before, and its age counts from there.
        """
        if at is None:
            at = int(self._clock.now() * 1000)
        return Callback(
            0,
            self._shard,
            self._account,
            subject,
            kind,
            body,
            max(at, due_at),
            due_at=due_at,
            request_id=request_id,
            volatile=not self._persist(),
        )
