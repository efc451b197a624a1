"""Identity keys of recipients. A change is reported to the business, and with security notifications on it must be
acknowledged.

While a change is unacknowledged, nothing is encrypted for that recipient. The record outlives sessions and restored
backups, so that neither hides a change.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.journal.change import Change
from coreapp.webhook import bodies
from tidings.aio import lru
from tidings.storage.business import identities
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.identities import StoredIdentity
from tidings.wire import codes
from tidings.wire.ids import MessageIds

log = logging.getLogger(__name__)

CHANGES = Counter("tidings_identity_changes_total", "Recipients found to use another identity key", ["blocks"])

UNACKNOWLEDGED = "the recipient has a new identity: acknowledge it with PUT /v1/contacts/{wa_id}/identity"
IDENTITY_KEY = 33  # bytes of a typed identity key
PAGE = 1000  # rows per read
LIMIT, CACHED = 100_000, 10_000  # peers


@dataclasses.dataclass(slots=True)
class IdentityFindings:
    """Identity findings of one unit of work. They must be committed with it, then passed to `announce`."""

    rows: list[StoredIdentity] = dataclasses.field(default_factory=list)
    # (peer, hash) of known identities that have post-quantum protection for the first time.
    kyber: list[tuple[str, bytes]] = dataclasses.field(default_factory=list)
    callbacks: list[Callback] = dataclasses.field(default_factory=list)
    changed: list[str] = dataclasses.field(default_factory=list)


class _Peer(lru.Entry):
    """State of one peer. `identity` is None for an unknown peer once `loaded` is set."""

    __slots__ = ("identity", "loaded")

    def __init__(self) -> None:
        self.identity: StoredIdentity | None = None
        self.loaded = False

    def is_known(self) -> bool:
        return self.identity is not None


@dataclasses.dataclass(eq=False, repr=False)
class Identities:
    """Identities of one account's recipients.

    Memory holds pinned peers, `CACHED` others, and the peers with an unacknowledged change: at most `LIMIT` of these
    (about 15 MB). Beyond that `is_complete` is false until the shard is reopened, and peers must be loaded before
    encryption.
    """

    context: ShardContext

    def __post_init__(self) -> None:
        self._ids = MessageIds()
        self._unacknowledged: set[str] = set()
        # Pinned peers are bounded by the window of unacknowledged deliveries, the encryption, and the requests of
        # Webapps.
        self._peers: lru.PinnedCache[str, _Peer] = lru.PinnedCache(_Peer, CACHED)
        self._listeners: list[Callable[[str], None]] = []
        self._requires_acknowledgement = self.context.config.preferences().security
        # Pending commit of an acknowledgement of all identities; None before the first one.
        self._settling: asyncio.Future[None] | None = None
        # Whether a peer that had post-quantum protection may continue without it.
        self.allow_pq_downgrade = self.context.settings.allow_pq_downgrade
        self.is_complete = True

    def on_change(self, call: Callable[[str], None]) -> None:
        """Register `call` to be called with each peer whose identity changed, once the change is in the journal."""
        self._listeners.append(call)

    async def open(self) -> None:
        """Read the unacknowledged changes; with security notifications off, acknowledge all of them. Raises
        `LeaseLost`.
        """
        if not self._requires_acknowledgement:
            await self.context.persist(
                lambda connection: identities.acknowledge_all(connection, self.context.account, of=self.context.owns),
                about="keys",
            )
            return
        after = ""
        async with self.context.database.reading() as connection:
            while page := await identities.list_unacknowledged(
                connection, self.context.account, after=after, limit=PAGE
            ):
                for row in page:
                    if self.context.owns(row.peer):
                        self._block(row.peer)
                after = page[-1].peer
                if not self.is_complete:
                    break

    def blocks(self, peer: str) -> bool:
        """Return whether encryption for this peer is blocked. Exact for a pinned and loaded peer, or while
        `is_complete`.
        """
        if peer in self._unacknowledged:
            return True
        if self.is_complete:
            return False
        known = self._peers.pinned.get(peer)
        identity = known.identity if known is not None else None
        return identity is not None and not identity.acknowledged and self._requires_acknowledgement

    def require_acknowledged(self, peer: str) -> None:
        """Raise `RequestRefused` with 1028 if the peer's identity is unacknowledged."""
        if self.blocks(peer):
            raise RequestRefused(codes.IDENTITY_UNACKNOWLEDGED, UNACKNOWLEDGED)

    def pinned(self, peers: Sequence[str]) -> contextlib.AbstractContextManager[None]:
        """Keep the state of these peers in memory for the duration of the block."""
        return self._peers.pinning(peers)

    async def load(self, peers: Iterable[str]) -> None:
        """Load the state of these peers, which must be pinned."""
        missing = [peer for peer in peers if not self._peers.pinned[peer].loaded]
        if not missing:
            return
        settled = self._settles
        found = await self.context.database.query(
            lambda connection: identities.list_identities(connection, self.context.account, missing)
        )
        rows = {row.peer: row for row in found}
        for peer in missing:
            known = self._peers.pinned[peer]
            # Another task may have loaded or found it during the read.
            if not known.loaded:
                row = rows.get(peer)
                if row is not None and (settled or self._settles):
                    row = dataclasses.replace(row, acknowledged=True)
                known.identity, known.loaded = row, True

    def find(self, peer: str) -> StoredIdentity | None:
        """Return the identity of a pinned and loaded peer; None if it is unknown."""
        return self._peers.pinned[peer].identity

    def learn(
        self,
        peer: str,
        key: bytes,
        findings: IdentityFindings,
        *,
        before: bytes | None = None,
        subject: str = "",
        kyber: bool = False,
    ) -> None:
        """Record that a pinned and loaded peer uses this identity key.

        before: key of the session in memory, used where no identity is known; with neither, the key is trusted
        subject: event with which the report is ordered, such as the message that the key came with; empty for none
        kyber: whether the session has post-quantum protection
        """
        known = self._peers.pinned[peer]
        digest = hash_of(key)
        if known.identity is not None and known.identity.hash == digest:
            if kyber and not known.identity.had_kyber:
                known.identity = dataclasses.replace(known.identity, had_kyber=True)
                findings.kyber.append((peer, digest))
            return
        changed = known.identity is not None or before not in (None, key)
        is_blocking = changed and self._requires_acknowledgement
        known.identity = StoredIdentity(self.context.account, peer, digest, self.context.now(), not is_blocking, kyber)
        known.loaded = True
        findings.rows.append(known.identity)
        if changed:
            findings.changed.append(peer)
            CHANGES.labels("yes" if is_blocking else "no").inc()
            log.info("identity.changed", extra={"peer": peer, "hash": text_of(digest), "acknowledged": not is_blocking})
        if is_blocking:
            self._block(peer)
            findings.callbacks.append(self._notification(known.identity, subject))

    def is_downgrade(self, peer: str, key: bytes) -> bool:
        """Return whether a session without post-quantum protection would be a forbidden downgrade for this pinned and
        loaded peer.

        False for another identity key than the one that had it: a new identity has no history.
        """
        known = self._peers.pinned[peer].identity
        return not self.allow_pq_downgrade and known is not None and known.had_kyber and known.hash == hash_of(key)

    def announce(self, findings: IdentityFindings, committed: asyncio.Future[None]) -> None:
        """Keep found identities in memory until the commit that they are in is on disk, and notify the listeners."""
        peers = [row.peer for row in findings.rows] + [peer for peer, _ in findings.kyber]
        if not peers:
            return
        self._peers.pin(peers)
        committed.add_done_callback(lambda _: self._peers.unpin(peers))
        for peer in dict.fromkeys(findings.changed):
            for call in self._listeners:
                call(peer)

    @property
    def unacknowledged(self) -> int:
        """Unacknowledged identity changes in memory."""
        return len(self._unacknowledged)

    def acknowledged(self, peer: str) -> None:
        """Record that the present identity of a pinned and loaded peer is acknowledged, which is on disk."""
        known = self._peers.pinned[peer]
        if known.identity is not None:
            known.identity = dataclasses.replace(known.identity, acknowledged=True)
        self._unacknowledged.discard(peer)

    def settings_changed(self) -> None:
        """Acknowledge all identities if security notifications were turned off."""
        before, self._requires_acknowledgement = (
            self._requires_acknowledgement,
            self.context.config.preferences().security,
        )
        if not before or self._requires_acknowledgement:
            return
        self._unacknowledged.clear()
        self.is_complete = True
        self._peers.clear()
        for known in self._peers.pinned.values():
            if known.identity is not None:
                known.identity = dataclasses.replace(known.identity, acknowledged=True)
        self._settling = self.context.journal.put(
            Change(self.context.account, acknowledges_all=self.context.owns), urgent=True
        )

    @property
    def _settles(self) -> bool:
        """Return whether stored identities count as acknowledged, whatever their rows contain."""
        return not self._requires_acknowledgement or (self._settling is not None and not self._settling.done())

    def _notification(self, identity: StoredIdentity, subject: str) -> Callback:
        message_id = self._ids.new_notice()
        body = bodies.identity_changed(message_id, identity.peer, described(identity))
        return self.context.callback(
            subject or message_id, "inbound_message", body, recipient=identity.peer, at=identity.created_at
        )

    def _block(self, peer: str) -> None:
        if peer in self._unacknowledged:
            return
        if len(self._unacknowledged) >= LIMIT:
            if self.is_complete:
                log.warning("identities.many_unacknowledged", extra={"limit": LIMIT})
            self.is_complete = False
            return
        self._unacknowledged.add(peer)


def hash_of(key: bytes) -> bytes:
    """Return the first 8 bytes of the SHA-256 of a typed identity key."""
    return hashlib.sha256(key).digest()[:8]


def text_of(digest: bytes) -> str:
    """Return a hash as the API has it: base64."""
    return base64.b64encode(digest).decode()


def described(identity: StoredIdentity) -> bodies.DescribedIdentity:
    """Return an identity as webhooks have it."""
    return bodies.DescribedIdentity(identity.acknowledged, identity.created_at, text_of(identity.hash))
