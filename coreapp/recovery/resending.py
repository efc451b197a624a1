"""Resending: messages that a recipient's device could not decrypt and requests again from us.

The other direction, messages that we request again, is `recovering`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Protocol

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.peers.sessions import SessionStore
from coreapp.recovery.control_messages import ControlMessage
from coreapp.recovery.sent_content import KeptContents, SentContents
from coreapp.recovery.session_repair import Budget
from coreapp.sending.encryption import RENEW, Encryption
from coreapp.statuses.tracker import StatusTracker
from tidings import e2ee
from tidings.client import sessions
from tidings.storage.business import messages
from tidings.storage.business.messages import Status
from tidings.wire import device, ids
from tidings.wire.device import Deliver

log = logging.getLogger(__name__)

RESENT = Counter("tidings_messages_resent_total", "Messages that a recipient requested again", ["outcome"])


class Repetitions(Protocol):
    """Effects of a batch of deliveries that concern repeated messages."""

    kept: dict[str, bytes]  # by message id: the kept content, as in `Change`
    control_messages: list[ControlMessage]


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class RetryRequestHandler:
    """Grants retry requests of recipients for one account. `load` must be called first for each batch of deliveries."""

    context: ShardContext
    contents: SentContents
    _: dataclasses.KW_ONLY
    sessions: SessionStore
    encryption: Encryption
    tracker: StatusTracker
    budget: Budget
    # State of the batch in progress. Bounded by the window of unacknowledged deliveries.
    _kept: dict[str, tuple[messages.KeptMessage, KeptContents]] = dataclasses.field(default_factory=dict, init=False)
    _renewing: set[str] = dataclasses.field(default_factory=set, init=False)

    async def load(self, deliveries: Sequence[Deliver]) -> None:
        """Read the kept contents that the retry requests among these deliveries name."""
        self.evict()
        requested = {
            ref
            for delivery in deliveries
            if delivery.kind == device.RETRY
            for ref in delivery.refs[: sessions.MAX_REFS]
        }
        if requested:
            rows = await self.context.database.query(
                lambda connection: messages.list_kept(connection, self.context.account, list(requested))
            )
            self._kept = {row.id: (row, KeptContents.decode(row.kept)) for row in rows}

    def evict(self) -> None:
        """Drop what was loaded for a batch."""
        self._kept, self._renewing = {}, set()

    def resend(self, delivery: Deliver, repetitions: Repetitions) -> None:
        """Repeat the messages that were sent to this peer and are not delivered. The limits of sessions and budget
        apply.
        """
        for message_id in delivery.refs[: sessions.MAX_REFS]:
            outcome = self._resend(message_id, delivery, repetitions)
            RESENT.labels(outcome).inc()
            log.info("message.requested_again", extra={"id": message_id, "by": delivery.sender, "outcome": outcome})

    def _resend(self, message_id: str, delivery: Deliver, repetitions: Repetitions) -> str:
        row, kept = self._kept.get(message_id, (None, None))
        if row is None or kept is None or row.peer != delivery.sender:
            return "not kept"
        if self.tracker.held(message_id).status not in (Status.ACCEPTED, Status.SENT):
            return "settled"
        requested_by = kept.after(None, delivery.id).requested_by
        if kept.requested_by == requested_by:
            return "answered"
        if kept.attempts >= sessions.MAX_ATTEMPTS:
            return "given up"
        record = self.sessions.in_memory(delivery.sender)
        renews = self._renews(delivery.sender, record, kept)
        if renews is None:
            return "put off"
        try:
            content = self.contents.open(row, kept)
        except e2ee.CorruptState:
            return "unreadable"
        if not self.budget.resending.take(delivery.sender):
            return "too many"
        kept = kept.after(None if self._is_renewing(delivery.sender) else record, delivery.id)
        self._kept[message_id] = (row, kept)
        repetitions.kept[message_id] = kept.encode()
        envelope_id = ids.repetition(message_id, kept.attempts)
        repetitions.control_messages.append(
            ControlMessage(envelope_id, row.peer, RENEW if renews else "", content, row.request_id)
        )
        return "again"

    def _is_renewing(self, peer: str) -> bool:
        return peer in self._renewing or self.encryption.is_renewing(peer)

    def _renews(self, peer: str, record: e2ee.SessionRecord | None, kept: KeptContents) -> bool | None:
        """Return whether the message must use a new session, because it was encrypted in the one in memory; None if a
        new session is not allowed now.
        """
        if record is None or self._is_renewing(peer):
            return False
        if kept.is_session_known:
            same = kept.session == sessions.tag_of(record)
        else:
            # It waited for a session. A session on which the peer has since replied is not the one that failed.
            same = record.unacknowledged and not self.budget.renewals.used(peer)
        if not same:
            return False
        if not self.budget.renewals.take(peer):
            return None
        self._renewing.add(peer)
        return True
