"""Session repair after a message that could not be decrypted: a new session where the old one is at fault, and a
request to send the message again.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence

import msgspec
from prometheus_client import Counter

from coreapp.peers.sessions import SessionStore
from coreapp.recovery.control_messages import ControlMessage
from coreapp.sending.encryption import RENEW, Encryption
from tidings import e2ee
from tidings.aio.clock import Clock
from tidings.aio.use_limit import UseLimit
from tidings.client import sessions
from tidings.wire import device
from tidings.wire.content import NULL_CONTENT
from tidings.wire.ids import MessageIds

log = logging.getLogger(__name__)

RENEWALS = Counter("tidings_session_renewals_total", "Sessions in which a message could not be decrypted", ["outcome"])
REQUESTED = Counter("tidings_messages_requested_again_total", "Messages that could not be decrypted", ["outcome"])

PERIOD = 3600.0  # seconds
# renewals per peer and period; each takes a bundle, one of its one-time pre-keys, and a session set-up
MAX_RENEWALS = 3
MAX_REQUESTED = 500  # messages requested from one peer per period
MAX_RESENT = 5_000  # messages repeated to one peer per period; a quarter of the job queue
MAX_UNDER_WAY = 1_000  # concurrent renewals of all peers; beyond that the peer's next message tries again
REMEMBERED = 10_000  # peers; an evicted peer gets a fresh limit


class Budget:
    """Limits on the cost that peers can cause with undecryptable messages, broken or forged."""

    def __init__(self, clock: Clock) -> None:
        # renewals of the session with a peer
        self.renewals: UseLimit[str] = UseLimit(clock, limit=MAX_RENEWALS, period=PERIOD, remembered=REMEMBERED)
        # messages that we request again from a peer
        self.recovering: UseLimit[str] = UseLimit(clock, limit=MAX_REQUESTED, period=PERIOD, remembered=REMEMBERED)
        # messages that a peer requests again from us
        self.resending: UseLimit[str] = UseLimit(clock, limit=MAX_RESENT, period=PERIOD, remembered=REMEMBERED)


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class SessionRepair:
    """Decides for one account how to respond to messages that could not be decrypted."""

    sessions: SessionStore
    encryption: Encryption
    budget: Budget
    _ids: MessageIds = dataclasses.field(default_factory=MessageIds, init=False)

    def requests_again(self, sender: str, error: e2ee.E2EEError) -> bool:
        """Return whether this message is requested again, and count it against the limit."""
        if not sessions.is_repairable(error):
            return False
        admitted = self.budget.recovering.take(sender)
        REQUESTED.labels("requested" if admitted else "too many").inc()
        return admitted

    def control_messages(self, lost: Mapping[str, Sequence[str]]) -> list[ControlMessage]:
        """Return the control messages to the senders of lost messages.

        lost: ids of lost messages by sender; the senders' sessions must be pinned and loaded
        """
        messages: list[ControlMessage] = []
        for peer, message_ids in lost.items():
            if self._renews(peer):
                log.info("session.renewed", extra={"peer": peer})
                # Sent first, so that the peer has the session when it reads the requests.
                messages.append(ControlMessage(self._ids.new(), peer, RENEW, NULL_CONTENT))
            for start in range(0, len(message_ids), sessions.MAX_REFS):
                body = msgspec.json.encode(message_ids[start : start + sessions.MAX_REFS])
                messages.append(ControlMessage(self._ids.new(), peer, device.RETRY, body))
        return messages

    def _renews(self, peer: str) -> bool:
        record = self.sessions.in_memory(peer)
        if self.encryption.is_renewing(peer):
            return False
        if record is not None and record.unacknowledged and self.budget.renewals.used(peer):
            # The peer has not replied on this session: its message was encrypted before it had the session.
            return False
        if self.encryption.renewals >= MAX_UNDER_WAY or not self.budget.renewals.take(peer):
            RENEWALS.labels("put off").inc()
            return False
        RENEWALS.labels("begun").inc()
        return True
