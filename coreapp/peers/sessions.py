"""Encryption sessions in memory, and their sealed halves for the database.

A record in memory is always at or ahead of its row. A pinned record stays in memory, whatever the cache evicts: peers
are pinned before their rows are read, and stay pinned until a change is on disk. Using an older row again would encrypt
a second message with the same key.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from coreapp.account.own_device import OwnDevice
from tidings import e2ee
from tidings.aio import lru
from tidings.storage.business import sessions
from tidings.storage.database import Database

log = logging.getLogger(__name__)


# Bytes. A normal peer's record has about 3,000. A longer one is full of skipped keys, which take four times as much in
# memory; it is read again when needed. 10,000 records take 50 MB with normal peers and 2.6 GB at worst.
MAX_CACHED = 64 * 1024
CACHED = 10_000  # sessions


class _Session(lru.Entry):
    """Session with one peer, if there is one. `drops` counts how often it was dropped."""

    __slots__ = ("drops", "record")

    def __init__(self) -> None:
        self.drops = 0
        self.record: e2ee.SessionRecord | None = None

    def is_known(self) -> bool:
        return self.record is not None and self.record.length <= MAX_CACHED


class SessionStore:
    """Sessions of one account. Memory holds `CACHED` of them in addition to the pinned ones; none of these is over
    `MAX_CACHED`.
    """

    def __init__(self, database: Database, device: OwnDevice) -> None:
        self._database = database
        self._device = device
        # Pinned sessions are bounded by the job queue, the window of unacknowledged deliveries and the encryption.
        self._sessions: lru.PinnedCache[str, _Session] = lru.PinnedCache(_Session, CACHED)

    def in_memory(self, peer: str) -> e2ee.SessionRecord | None:
        """Return the record; None if it is not in memory."""
        session = self._sessions.get(peer)
        return None if session is None else session.record

    def pinned(self, peers: Sequence[str]) -> contextlib.AbstractContextManager[None]:
        """Keep the records of these peers in memory for the duration of the block."""
        return self._sessions.pinning(peers)

    def hold(self, peer: str, committed: asyncio.Future[None]) -> None:
        """Keep a changed record, or the fact that there is none, in memory until the commit is on disk."""
        self._sessions.pin((peer,))
        committed.add_done_callback(lambda _: self._sessions.unpin((peer,)))

    async def load(self, peers: Sequence[str]) -> None:
        """Load the records of these peers, which must be pinned. A damaged row counts as none."""
        missing = [peer for peer in peers if self._is_unread(peer)]
        if not missing:
            return
        rows = await self._database.query(
            lambda connection: sessions.list_sessions(connection, self._device.number, missing)
        )
        for row in rows:
            # Another task may have loaded, created or dropped it during the read.
            if self._is_unread(row.peer):
                self._sessions.pinned[row.peer].record = self._open(row)

    def keep(self, peer: str, record: e2ee.SessionRecord) -> None:
        """Put a record in memory in place of the present one. The peer must be pinned."""
        self._sessions.pinned[peer].record = record

    def evict(self, peer: str) -> None:
        """Drop the session. The peer must be pinned, and `hold` must keep it until its row is deleted."""
        session = self._sessions.pinned[peer]
        session.record = None
        session.drops += 1

    def drops(self, peer: str) -> int:
        """Return a count that grows whenever the session is dropped while the peer is pinned."""
        return self._sessions.pinned[peer].drops

    def seal_sending(self, peer: str, record: e2ee.SessionRecord) -> sessions.SealedSendingHalf:
        """Return the row changes after an encryption."""
        account = self._device.number
        return sessions.SealedSendingHalf(
            account, peer, self._device.sealer.seal(record.sending_half(), context=(account, peer, "sending"))
        )

    def seal_whole(self, peer: str, record: e2ee.SessionRecord) -> sessions.SealedSession:
        """Return the row after a decryption or a session set-up."""
        account, seal = self._device.number, self._device.sealer.seal
        return sessions.SealedSession(
            account,
            peer,
            seal(record.sending_half(), context=(account, peer, "sending")),
            seal(record.receiving_half(), context=(account, peer, "receiving")),
        )

    def _is_unread(self, peer: str) -> bool:
        session = self._sessions.pinned[peer]
        # A dropped session may still have its row until the commit.
        return session.record is None and not session.drops

    def _open(self, row: sessions.SealedSession) -> e2ee.SessionRecord | None:
        unseal = self._device.sealer.open
        try:
            return e2ee.SessionRecord.load(
                self._device.identity,
                unseal(row.sending, (row.account, row.peer, "sending")),
                unseal(row.receiving, (row.account, row.peer, "receiving")),
            )
        except e2ee.CorruptState:
            log.exception("session.corrupt", extra={"peer": row.peer})
            return None
