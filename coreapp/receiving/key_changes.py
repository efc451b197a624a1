"""A peer has other keys than before: the session ends, and the business hears of it."""

from __future__ import annotations

import logging

from coreapp.peers.identities import IDENTITY_KEY, Identities, Learnt
from coreapp.peers.sessions import SessionStore
from coreapp.receiving.consequences import Consequences
from coreapp.receiving.inspection import EVENTS
from tidings import e2ee
from tidings.client import sessions
from tidings.wire import device
from tidings.wire.device import Deliver

log = logging.getLogger(__name__)


class KeyChanges:
    """Those of one account's peers, who are pinned and loaded."""

    def __init__(self, store: SessionStore, identities: Identities) -> None:
        self._store = store
        self._identities = identities

    def note(self, delivery: Deliver, consequences: Consequences) -> None:
        """The peer has registered with another key; a session that has this key already goes on."""
        consequences.registered.add(delivery.sender)
        record = self._store.in_memory(delivery.sender)
        before = record.remote_identity if record is not None else None
        if not sessions.goes_on(record, delivery.body):
            self._start_over(delivery.sender, consequences)
        if len(delivery.body) == IDENTITY_KEY:
            self.learn(delivery, delivery.body, consequences, before=before)

    @property
    def allow_downgrade(self) -> bool:
        """May a peer who had post-quantum protection go on without?"""
        return self._identities.allow_pq_downgrade

    def is_downgrade(self, peer: str, first: e2ee.PreKeySignalMessage) -> bool:
        """Does this first message leave out what its identity had before, against our settings?"""
        return first.kyber_prekey_id is None and self._identities.is_downgrade(peer, first.identity_key)

    def learn(
        self, delivery: Deliver, key: bytes, consequences: Consequences, *, before: bytes | None, kyber: bool = False
    ) -> None:
        """A delivery came with this key, and the session had the key `before`; kyber: with post-quantum protection."""
        learnt = Learnt()
        self._identities.learn(delivery.sender, key, learnt, before=before, subject=delivery.id, kyber=kyber)
        consequences.learnt.rows += learnt.rows
        consequences.learnt.kyber += learnt.kyber
        consequences.learnt.changed += learnt.changed
        # Before the message that it was learnt from.
        consequences.callbacks += learnt.callbacks
        if learnt.changed and delivery.kind == device.PREKEY:
            consequences.arrivals.start_over(delivery.sender)

    def _start_over(self, peer: str, consequences: Consequences) -> None:
        """The peer has new keys: the next message opens a new session."""
        log.info("session.identity_changed", extra={"peer": peer})
        EVENTS.labels(device.IDENTITY, "noted").inc()
        consequences.arrivals.start_over(peer)
        consequences.records.pop(peer, None)
        consequences.dropped.append(peer)
        self._store.forget(peer)
