"""A status of a message as the row that the journal writes."""

from __future__ import annotations

from coreapp.statuses.tracker import StatusTracker
from coreapp.webhook.audience import Audience
from coreapp.webhook.rows import CallbackRows
from coreapp.webhook.status_delay import StatusDelay
from tidings.storage.business.callbacks import Callback


class StatusRows:
    """Makes those of one account's messages, which must be held in the progress book."""

    def __init__(self, rows: CallbackRows, progress: StatusTracker, delay: StatusDelay, audience: Audience) -> None:
        self._rows = rows
        self._progress = progress
        self._delay = delay
        self._audience = audience

    def drops(self) -> bool:
        """Is the next one to be left out, as there is no room for it and nobody listens? It is counted then."""
        if not self._audience.is_full():
            return False
        self._audience.drop()
        return True

    def make(self, message_id: str, body: bytes, now: int) -> Callback:
        """What tells of one step that is reported now, in Unix milliseconds."""
        due_at = self._delay.due_at(message_id, now)
        request_id = self._progress.request_id(message_id)
        return self._rows.make(message_id, "status_change", body, request_id=request_id, at=now, due_at=due_at)
