"""The encryption sessions at hand: records in memory, sealed halves for the database.

A record in memory is always at or ahead of its row. One whose change is not committed yet is held, whatever the
cache forgets: to read the older row back would encrypt a second message with the same key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from coreapp.account import OwnDevice
from tidings import e2ee
from tidings.runtime.lru import LRU
from tidings.storage import sessions
from tidings.storage.database import Database

log = logging.getLogger(__name__)


class SessionStore:
    """All sessions of one account; `limit` of them in memory besides those that are held."""

    def __init__(self, database: Database, device: OwnDevice, *, limit: int = 10_000) -> None:
        self._database = database
        self._device = device
        self._records: LRU[str, e2ee.SessionRecord] = LRU(limit)
        self._held: dict[str, tuple[e2ee.SessionRecord, int]] = {}

    def at_hand(self, peer: str) -> e2ee.SessionRecord | None:
        """The record, when it is in memory."""
        held = self._held.get(peer)
        return held[0] if held else self._records.get(peer)

    async def load(self, peers: Sequence[str]) -> Mapping[str, e2ee.SessionRecord]:
        """The records of those peers that have one, from memory or the database. A damaged row counts as none."""
        found = {peer: record for peer in peers if (record := self.at_hand(peer)) is not None}
        missing = [peer for peer in peers if peer not in found]
        if missing:
            async with self._database.reading() as connection:
                rows = await sessions.list_sessions(connection, self._device.number, missing)
            for row in rows:
                # Somebody else may have loaded or made it while we read.
                record = self.at_hand(row.peer) or self._open(row)
                if record is not None:
                    found[row.peer] = record
                    self._records.put(row.peer, record)
        return found

    def keep(self, peer: str, record: e2ee.SessionRecord) -> None:
        """A new record, from now on the one at hand; `hold` it with the commit of its change."""
        self._records.put(peer, record)
        if peer in self._held:
            self._held[peer] = (record, self._held[peer][1])

    def hold(self, peer: str, record: e2ee.SessionRecord, committed: asyncio.Future[None]) -> None:
        """Keep a changed record in memory at least until its change is on disk."""
        self._records.put(peer, record)
        held = self._held.get(peer)
        self._held[peer] = (record, held[1] + 1 if held else 1)
        committed.add_done_callback(lambda _: self._let_go(peer))

    def forget(self, peer: str) -> None:
        """The session is over: its row is being deleted."""
        self._records.drop(peer)
        self._held.pop(peer, None)

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
            record.has_used_pq,
        )

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

    def _let_go(self, peer: str) -> None:
        held = self._held.get(peer)
        if held is None:
            return
        record, count = held
        if count > 1:
            self._held[peer] = (record, count - 1)
        else:
            del self._held[peer]
