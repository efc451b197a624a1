"""Conversion of a callback's body into the row that the journal writes."""

from __future__ import annotations

from coreapp.context import ShardContext
from tidings.storage.business.callbacks import Callback


class CallbackRows:
    """Creates the callbacks of one account."""

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
        """Return a callback, to be committed with the event it reports. The journal sets its `seq`.

        subject: message or event that it concerns, whose callbacks are posted in order
        recipient: recipient who caused it; callbacks are posted round robin over recipients; empty for none
        at: Unix milliseconds; None for now
        due_at: Unix milliseconds before which it is not posted, and from which its age counts; 0 for at once
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
