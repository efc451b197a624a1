"""The encryption sessions at hand: records in memory, sealed halves for the database.

A record in memory is always at or ahead of its row. One that is pinned stays, whatever the cache forgets: whoever reads
rows pins their peers first, and a change keeps its peer pinned until it is on disk. To take up an older row again would
encrypt a second message with the same key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from coreapp.account.device import OwnDevice
from tidings import e2ee
from tidings.runtime.lru import LRU
from tidings.storage.business import sessions
from tidings.storage.database import Database

log = logging.getLogger(__name__)


class _Pin:
    """A peer that must not be forgotten by itself. drops: how often its session was given up while pinned."""

    __slots__ = ("count", "drops", "record")

    def __init__(self, record: e2ee.SessionRecord | None) -> None:
        self.count = 1
        self.drops = 0
        self.record = record


# Bytes; an honest peer's record has some 3,000. A longer one is full of keys that were passed over, which take four
# times as much in memory, and is read again when needed: 10,000 records take 50 MB of honest peers, 2.6 GB at worst.
MAX_CACHED = 64 * 1024


class SessionStore:
    """All sessions of one account; `limit` of them in memory besides those that are pinned, none over `MAX_CACHED`."""

    def __init__(self, database: Database, device: OwnDevice, *, limit: int = 10_000) -> None:
        self._database = database
        self._device = device
        self._records: LRU[str, e2ee.SessionRecord] = LRU(limit)
        # Bounded by the job queue, the window of unacknowledged deliveries and the lane.
        self._pins: dict[str, _Pin] = {}

    def at_hand(self, peer: str) -> e2ee.SessionRecord | None:
        """The record, when it is in memory."""
        pin = self._pins.get(peer)
        return self._records.get(peer) if pin is None else pin.record

    def pin(self, peers: Iterable[str]) -> None:
        """Keep what is, or comes to be, in memory for these peers, until as many `unpin`."""
        for peer in peers:
            pin = self._pins.get(peer)
            if pin is not None:
                pin.count += 1
            else:
                self._pins[peer] = _Pin(self._records.get(peer))
                self._records.drop(peer)

    def unpin(self, peers: Iterable[str]) -> None:
        """Take one pin of each back."""
        for peer in peers:
            pin = self._pins[peer]
            pin.count -= 1
            if not pin.count:
                del self._pins[peer]
                if pin.record is not None and pin.record.length <= MAX_CACHED:
                    self._records.put(peer, pin.record)

    def hold(self, peer: str, committed: asyncio.Future[None]) -> None:
        """Keep a changed record, or the knowledge that there is none any more, at least until that is on disk."""
        self.pin((peer,))
        committed.add_done_callback(lambda _: self.unpin((peer,)))

    async def load(self, peers: Sequence[str]) -> None:
        """Have at hand the records of those peers that have one; they must be pinned. A damaged row counts as none."""
        missing = [peer for peer in peers if self._is_unread(peer)]
        if not missing:
            return
        rows = await self._database.query(
            lambda connection: sessions.list_sessions(connection, self._device.number, missing)
        )
        for row in rows:
            # Somebody else may have loaded, made or given it up while we read.
            if self._is_unread(row.peer):
                self._pins[row.peer].record = self._open(row)

    def keep(self, peer: str, record: e2ee.SessionRecord) -> None:
        """From now on this record is the one at hand; the peer must be pinned."""
        self._pins[peer].record = record

    def forget(self, peer: str) -> None:
        """The session is over; the peer must be pinned, and `hold` it until its row is deleted."""
        pin = self._pins[peer]
        pin.record = None
        pin.drops += 1

    def drops(self, peer: str) -> int:
        """How often the session was given up since the peer was pinned."""
        return self._pins[peer].drops

    def seal_sending(self, peer: str, record: e2ee.SessionRecord) -> sessions.SendingHalf:
        """What encrypting changed."""
        account = self._device.number
        return sessions.SendingHalf(
            account, peer, self._device.sealer.seal(record.sending_half(), context=(account, peer, "sending"))
        )

    def seal_whole(self, peer: str, record: e2ee.SessionRecord) -> sessions.Session:
        """What decrypting or a set-up changed."""
        account, seal = self._device.number, self._device.sealer.seal
        return sessions.Session(
            account,
            peer,
            seal(record.sending_half(), context=(account, peer, "sending")),
            seal(record.receiving_half(), context=(account, peer, "receiving")),
        )

    def _is_unread(self, peer: str) -> bool:
        pin = self._pins[peer]
        # A session that was given up may still have its row until the commit.
        return pin.record is None and not pin.drops

    def _open(self, row: sessions.Session) -> e2ee.SessionRecord | None:
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
