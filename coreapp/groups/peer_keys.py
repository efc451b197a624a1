"""Sender keys of other participants that the business received."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable

from coreapp.context import ShardContext
from tidings import e2ee
from tidings.aio.lru import LRU
from tidings.storage.business import sender_keys
from tidings.storage.business.sender_keys import PeerKey

log = logging.getLogger(__name__)

REMEMBERED = 1_000  # senders in memory

Records = dict[str, e2ee.SenderKeyRecord]


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class PeerKeys:
    """Sender keys of peers of one account. Used by one batch at a time."""

    context: ShardContext
    # By sender, then by group.
    _known: LRU[str, Records] = dataclasses.field(default_factory=lambda: LRU(REMEMBERED), init=False)

    async def load(self, senders: Iterable[str]) -> dict[str, Records]:
        """Return the records of these senders, by group. They are the ones in memory: changed ones must be stored."""
        wanted = list(dict.fromkeys(senders))
        found: dict[str, Records] = {}
        for sender in wanted:
            known = self._known.get(sender)
            if known is not None:
                found[sender] = known
        missing = [sender for sender in wanted if sender not in found]
        if missing:
            found |= await self._read(missing)
        return found

    def of(self, sender: str) -> Records:
        """Return the records of a sender that are in memory, without those that are only on disk."""
        known = self._known.get(sender)
        # An empty dict in memory must be returned itself: later batches find the keys added to it.
        return {} if known is None else known

    def evict(self, sender: str, group_id: str) -> None:
        """Drop the key of a participant who left."""
        known = self._known.get(sender)
        if known is not None:
            known.pop(group_id, None)

    def sealed(self, sender: str, group_id: str, record: e2ee.SenderKeyRecord) -> PeerKey:
        """Return the row of the present record."""
        account = self.context.device.number
        blob = self.context.device.sealer.seal(record.to_bytes(), context=_context(account, sender, group_id))
        return PeerKey(account, sender, group_id, blob)

    async def _read(self, senders: Collection[str]) -> dict[str, Records]:
        account = self.context.device.number
        rows = await self.context.database.query(
            lambda connection: sender_keys.list_peers(connection, account, list(senders))
        )
        found: dict[str, Records] = {sender: {} for sender in senders}
        for row in rows:
            try:
                opened = self.context.device.sealer.open(row.record, _context(account, row.sender, row.group_id))
                found[row.sender][row.group_id] = e2ee.SenderKeyRecord.from_bytes(opened)
            except e2ee.CorruptState:
                log.exception("sender_key.corrupt", extra={"group": row.group_id, "from": row.sender})
        for sender, records in found.items():
            self._known.put(sender, records)
        return found


def _context(account: str, sender: str, group_id: str) -> tuple[str, str, str, str]:
    return (account, sender, "sender_key", group_id)
