"""Changes of a peer's keys: the session ends, and the business is notified."""

from __future__ import annotations

import dataclasses
import logging

from coreapp.peers.identities import IDENTITY_KEY, Identities, IdentityFindings
from coreapp.peers.sessions import SessionStore
from coreapp.receiving.effects import BatchEffects
from coreapp.receiving.inspection import EVENTS
from tidings import e2ee
from tidings.client import sessions
from tidings.wire import device
from tidings.wire.device import Deliver

log = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class KeyChanges:
    """Handles key changes of one account's peers, which must be pinned and loaded."""

    store: SessionStore
    identities: Identities

    def note(self, delivery: Deliver, effects: BatchEffects) -> None:
        """Handle a registration of the peer with another key. A session that has this key already is kept."""
        effects.registered.add(delivery.sender)
        record = self.store.in_memory(delivery.sender)
        before = record.remote_identity if record is not None else None
        if not sessions.has_identity(record, delivery.body):
            self._start_over(delivery.sender, effects)
        if len(delivery.body) == IDENTITY_KEY:
            self.learn(delivery, delivery.body, effects, before=before)

    def is_downgrade(self, peer: str, first: e2ee.PreKeySignalMessage) -> bool:
        """Return whether this first message omits post-quantum protection that its identity had, against our
        settings.
        """
        return first.kyber_prekey_id is None and self.identities.is_downgrade(peer, first.identity_key)

    def learn(
        self, delivery: Deliver, key: bytes, effects: BatchEffects, *, before: bytes | None, kyber: bool = False
    ) -> None:
        """Record the identity key of a delivery's sender.

        before: key of the session before the delivery; None without a session
        kyber: whether the session has post-quantum protection
        """
        findings = IdentityFindings()
        self.identities.learn(delivery.sender, key, findings, before=before, subject=delivery.message_id, kyber=kyber)
        effects.identity_findings.rows += findings.rows
        effects.identity_findings.kyber += findings.kyber
        effects.identity_findings.changed += findings.changed
        # Ordered before the message that the key came with.
        effects.callbacks += findings.callbacks
        if findings.changed and delivery.kind == device.PREKEY:
            effects.arrivals.start_over(delivery.sender)

    def _start_over(self, peer: str, effects: BatchEffects) -> None:
        """Drop the session of a peer with new keys. The next message opens a new one."""
        log.info("session.identity_changed", extra={"peer": peer})
        EVENTS.labels(device.IDENTITY, "noted").inc()
        effects.arrivals.start_over(peer)
        effects.records.pop(peer, None)
        effects.dropped.append(peer)
        self.store.evict(peer)
