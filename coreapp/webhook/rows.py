"""A body for the webhook as the row that the journal writes."""

from __future__ import annotations

from coreapp.context import ShardContext
from tidings.storage.business.callbacks import Callback


class CallbackRows:
    """Makes the callbacks of one account."""

    def __init__(self, context: ShardContext) -> None:
        self._config = context.config
        self._clock = context.clock
        self._account = context.account
        self._shard = context.shard

    def make(
        self,
        subject: str,
        kind: str,
        body: bytes,
        *,
        recipient: str = "",
        request_id: str = "",
        at: int | None = None,
        due_at: int = 0,
    ) -> Callback:
        """A callback to be committed with what it tells of; the journal gives it its `seq`.

        subject: the message or event that it is about, whose callbacks are posted in order; recipient: whose message or
        doing that is, with others of whom it takes turns; at: Unix milliseconds, now
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
            recipient=recipient,
            volatile=not self._config.preferences().persist,
        )
