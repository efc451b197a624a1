"""Whose keys a recipient uses: a change is told to the business, and with security notifications on it must be taken.

While a change waits for its acknowledgement nothing is encrypted for that recipient. What is known of a recipient
outlives sessions and restored backups, so that neither lets a change pass unseen.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.errors import Refused
from coreapp.journal import Change
from coreapp.webhook import bodies
from coreapp.webhook.rows import CallbackRows
from tidings.runtime import pinned
from tidings.storage.business import identities, shards
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.identities import Identity
from tidings.wire import codes
from tidings.wire.ids import MessageIds

log = logging.getLogger(__name__)

CHANGES = Counter("tidings_identity_changes_total", "Recipients found to use another identity key", ["asks"])

UNACKNOWLEDGED = "the recipient has a new identity: acknowledge it with PUT /v1/contacts/{wa_id}/identity"
IDENTITY_KEY = 33  # bytes of a typed identity key
PAGE = 1000


class Learnt:
    """What one unit of work found out about identities; it must be committed with that, then given to `announce`."""

    __slots__ = ("callbacks", "changed", "kyber", "rows")

    def __init__(self) -> None:
        self.rows: list[Identity] = []
        # (peer, hash) of those that were known, and have post-quantum protection for the first time.
        self.kyber: list[tuple[str, bytes]] = []
        self.callbacks: list[Callback] = []
        self.changed: list[str] = []


class _Peer(pinned.Entry):
    """What is known of one peer. identity: `None` for one who is not known, once `loaded`."""

    __slots__ = ("identity", "loaded")

    def __init__(self) -> None:
        self.identity: Identity | None = None
        self.loaded = False

    def is_known(self) -> bool:
        return self.identity is not None


class Identities:
    """The identities of one account's recipients.

    In memory are those that are pinned, `cached` others, and the peers whose change waits for its acknowledgement: at
    most `limit` of these (about 15 MB). Beyond that `is_complete` is false until the shard is opened again, and whoever
    encrypts has to load first.
    """

    def __init__(
        self, context: ShardContext, rows: CallbackRows, *, limit: int = 100_000, cached: int = 10_000
    ) -> None:
        self._database = context.database
        self._lease = context.lease
        self._owns = context.owns
        self._journal = context.journal
        self._config = context.config
        self._clock = context.clock
        self._account = context.account
        self._rows = rows
        self._limit = limit
        self._ids = MessageIds()
        self._unacknowledged: set[str] = set()
        # The pinned ones are bounded by the window of unacknowledged deliveries, the encryption, and the questions of
        # Webapps.
        self._peers: pinned.PinnedCache[str, _Peer] = pinned.PinnedCache(_Peer, cached)
        self._listeners: list[Callable[[str], None]] = []
        self._asks = self._config.preferences().security
        # That everything is acknowledged, on its way to the disk.
        self._settling: asyncio.Future[None] | None = None
        # A peer who had post-quantum protection may go on without.
        self.allow_pq_downgrade = context.settings.allow_pq_downgrade
        self.is_complete = True

    def on_change(self, call: Callable[[str], None]) -> None:
        """Have `call` called with each peer whose identity changed, once the change is in the journal."""
        self._listeners.append(call)

    async def open(self) -> None:
        """Read which changes wait for their acknowledgement; with security notifications off none does any more.

        Raises `LeaseLost`.
        """
        if not self._asks:
            await self._database.persist(
                shards.fenced(
                    self._lease,
                    lambda connection: identities.acknowledge_all(connection, self._account, of=self._owns),
                ),
                about="keys",
            )
            return
        after = ""
        async with self._database.reading() as connection:
            while page := await identities.list_unacknowledged(connection, self._account, after=after, limit=PAGE):
                for row in page:
                    if self._owns(row.peer):
                        self._block(row.peer)
                after = page[-1].peer
                if not self.is_complete:
                    break

    def blocks(self, peer: str) -> bool:
        """Is nothing to be encrypted for this peer? Sure for one who is pinned and loaded, or while `is_complete`."""
        if peer in self._unacknowledged:
            return True
        if self.is_complete:
            return False
        known = self._peers.pinned.get(peer)
        identity = known.identity if known is not None else None
        return identity is not None and not identity.acknowledged and self._asks

    def require_acknowledged(self, peer: str) -> None:
        """Raises `Refused` with 1028."""
        if self.blocks(peer):
            raise Refused(codes.IDENTITY_UNACKNOWLEDGED, UNACKNOWLEDGED)

    @contextlib.contextmanager
    def pinned(self, peers: Sequence[str]) -> Iterator[None]:
        """Keep in memory what is, or comes to be, known of these peers."""
        self._peers.pin(peers)
        try:
            yield
        finally:
            self._peers.unpin(peers)

    async def load(self, peers: Iterable[str]) -> None:
        """Have in memory what is known of these peers, who must be pinned."""
        missing = [peer for peer in peers if not self._peers.pinned[peer].loaded]
        if not missing:
            return
        settled = self._settles
        found = await self._database.query(
            lambda connection: identities.list_identities(connection, self._account, missing)
        )
        rows = {row.peer: row for row in found}
        for peer in missing:
            known = self._peers.pinned[peer]
            # Somebody else may have loaded or learnt it while we read.
            if not known.loaded:
                row = rows.get(peer)
                if row is not None and (settled or self._settles):
                    row = dataclasses.replace(row, acknowledged=True)
                known.identity, known.loaded = row, True

    def find(self, peer: str) -> Identity | None:
        """What is known of a peer who is pinned and loaded."""
        return self._peers.pinned[peer].identity

    def learn(
        self,
        peer: str,
        key: bytes,
        learnt: Learnt,
        *,
        before: bytes | None = None,
        subject: str = "",
        kyber: bool = False,
    ) -> None:
        """The peer, pinned and loaded, uses this identity key; with `kyber` it had post-quantum protection.

        before: the key of the session in memory, which counts where nothing else is known; with neither, the key is
        trusted. subject: the event with which this is told in order, the message that it came with say.
        """
        known = self._peers.pinned[peer]
        digest = hash_of(key)
        if known.identity is not None and known.identity.hash == digest:
            if kyber and not known.identity.had_kyber:
                known.identity = dataclasses.replace(known.identity, had_kyber=True)
                learnt.kyber.append((peer, digest))
            return
        changed = known.identity is not None or before not in (None, key)
        asks = changed and self._asks
        known.identity = Identity(self._account, peer, digest, int(self._clock.now() * 1000), not asks, kyber)
        known.loaded = True
        learnt.rows.append(known.identity)
        if changed:
            learnt.changed.append(peer)
            CHANGES.labels("yes" if asks else "no").inc()
            log.info("identity.changed", extra={"peer": peer, "hash": text_of(digest), "acknowledged": not asks})
        if asks:
            self._block(peer)
            learnt.callbacks.append(self._notification(known.identity, subject))

    def is_downgrade(self, peer: str, key: bytes) -> bool:
        """Would a session without post-quantum protection be a step down that this peer, pinned and loaded, may not
        take?

        Not for another identity key than the one that had it: that one starts fresh.
        """
        known = self._peers.pinned[peer].identity
        return not self.allow_pq_downgrade and known is not None and known.had_kyber and known.hash == hash_of(key)

    def announce(self, learnt: Learnt, committed: asyncio.Future[None]) -> None:
        """What was learnt is in the journal: kept in memory until it is on disk, and told to who listens."""
        peers = [row.peer for row in learnt.rows] + [peer for peer, _ in learnt.kyber]
        if not peers:
            return
        self._peers.pin(peers)
        committed.add_done_callback(lambda _: self._peers.unpin(peers))
        for peer in dict.fromkeys(learnt.changed):
            for call in self._listeners:
                call(peer)

    @property
    def unacknowledged(self) -> int:
        """Changed identities that wait for their acknowledgement, as far as in memory."""
        return len(self._unacknowledged)

    def acknowledged(self, peer: str) -> None:
        """The identity of a peer, pinned and loaded, that is known now is acknowledged, as is on disk."""
        known = self._peers.pinned[peer]
        if known.identity is not None:
            known.identity = dataclasses.replace(known.identity, acknowledged=True)
        self._unacknowledged.discard(peer)

    def settings_changed(self) -> None:
        """With security notifications turned off, whatever waits is acknowledged."""
        before, self._asks = self._asks, self._config.preferences().security
        if not before or self._asks:
            return
        self._unacknowledged.clear()
        self.is_complete = True
        self._peers.clear()
        for known in self._peers.pinned.values():
            if known.identity is not None:
                known.identity = dataclasses.replace(known.identity, acknowledged=True)
        self._settling = self._journal.put(Change(self._account, acknowledges_all=self._owns), urgent=True)

    @property
    def _settles(self) -> bool:
        """Are rows that wait acknowledged, whatever they say?"""
        return not self._asks or (self._settling is not None and not self._settling.done())

    def _notification(self, identity: Identity, subject: str) -> Callback:
        message_id = self._ids.new_notice()
        body = bodies.identity_changed(message_id, identity.peer, described(identity))
        return self._rows.make(
            subject or message_id, "inbound_message", body, recipient=identity.peer, at=identity.created_at
        )

    def _block(self, peer: str) -> None:
        if peer in self._unacknowledged:
            return
        if len(self._unacknowledged) >= self._limit:
            if self.is_complete:
                log.warning("identities.many_unacknowledged", extra={"limit": self._limit})
            self.is_complete = False
            return
        self._unacknowledged.add(peer)


def hash_of(key: bytes) -> bytes:
    """The first 8 bytes of the SHA-256 of a typed identity key."""
    return hashlib.sha256(key).digest()[:8]


def text_of(digest: bytes) -> str:
    """A hash as the API has it: base64."""
    return base64.b64encode(digest).decode()


def described(identity: Identity) -> bodies.DescribedIdentity:
    """An identity as webhooks have it."""
    return bodies.DescribedIdentity(identity.acknowledged, identity.created_at, text_of(identity.hash))
