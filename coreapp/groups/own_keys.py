"""The business's own sender keys: one for each group that it sends to, and who was given it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from prometheus_client import Counter

from coreapp.account.own_device import OwnDevice
from tidings import e2ee
from tidings.client import sender_keys
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.sender_keys import GIVEN, LACKS, Holder, OwnKey, list_holders, list_own
from tidings.storage.database import Database

log = logging.getLogger(__name__)

MADE = Counter("tidings_sender_keys_made_total", "Own sender keys made, by why", ["reason"])


class Key:
    """The key of one group. All changes are made in memory first, in the order in which they go to the journal.

    record:  `None` until the first message.
    holders: who may have it, each with the job that hands it over, `GIVEN` or `LACKS`.
    """

    __slots__ = ("_account", "_device", "_group_id", "epoch", "holders", "record")

    def __init__(self, device: OwnDevice, group_id: str) -> None:
        self._device = device
        self._account = device.number
        self._group_id = group_id
        self.record: e2ee.SenderKeyRecord | None = None
        self.epoch = 0
        self.holders: dict[str, str] = {}

    def renew(self, epoch: int) -> Sequence[str]:
        """Throw the key away and make a new one, which nobody has; returns the groups whose holders are to be cleared.

        What was encrypted with the old one stays readable for those who had it.
        """
        MADE.labels("new group" if self.record is None else "somebody left").inc()
        self.record = sender_keys.replace(self.record)
        self.epoch = epoch
        self.holders.clear()
        return (self._group_id,)

    def holds(self, member: str, job: str) -> Holder:
        """Note what a participant has, for the journal."""
        self.holders[member] = job
        return Holder(self._account, self._group_id, member, job)

    def lost_by(self, member: str) -> Sequence[Holder]:
        """A participant needs the key again, if they ever had it."""
        return (self.holds(member, LACKS),) if member in self.holders else ()

    def sealed(self) -> OwnKey:
        """The key as it is now, for the journal."""
        assert self.record is not None
        blob = self._device.sealer.seal(self.record.to_bytes(), context=_context(self._account, self._group_id))
        return OwnKey(self._account, self._group_id, self.epoch, blob)


def without(holders: Mapping[str, str], members: Iterable[str]) -> Sequence[str]:
    """The members who were not given the key, and to whom it is not under way either."""
    return sender_keys.lacking({member for member, job in holders.items() if job != LACKS}, members)


def under_way(holders: Mapping[str, str]) -> bool:
    """Is the key still on its way to somebody?"""
    return any(job not in (GIVEN, LACKS) for job in holders.values())


class OwnKeys:
    """All keys of one account that were looked at: at most one for each group that the business is in."""

    def __init__(self, database: Database, device: OwnDevice, live: Collection[str]) -> None:
        """live: ids of the jobs that an earlier owner left; a holder whose job is gone is given the key again."""
        self._database = database
        self._device = device
        self._live = set(live)
        self._keys: dict[str, Key] = {}

    def in_memory(self, group_id: str) -> Key:
        """The key of a group; it must have been loaded."""
        return self._keys[group_id]

    def find(self, group_id: str) -> Key | None:
        """The key of a group, when it was loaded."""
        return self._keys.get(group_id)

    async def load(self, groups: Iterable[str]) -> None:
        """Have these in memory."""
        missing = [group_id for group_id in dict.fromkeys(groups) if group_id not in self._keys]
        if not missing:
            return
        account = self._device.number
        async with self._database.reading() as connection:
            own = {row.group_id: row for row in await list_own(connection, account, missing)}
            holders = await list_holders(connection, account, missing)
        loaded = {group_id: Key(self._device, group_id) for group_id in missing}
        for group_id, row in own.items():
            loaded[group_id].record = self._open(row)
            loaded[group_id].epoch = row.epoch
        for holder in holders:
            lost = holder.job not in (GIVEN, LACKS) and holder.job not in self._live
            loaded[holder.group_id].holders[holder.member] = LACKS if lost else holder.job
        for group_id, key in loaded.items():
            # Somebody else may have loaded and used it while we read.
            self._keys.setdefault(group_id, key)

    def handed_over(self, job_ids: Collection[str], group_id: str) -> GroupChanges | None:
        """These jobs have left the queue: whoever they were for has the key, or cannot be given it."""
        key = self._keys[group_id]
        members = [member for member, job in key.holders.items() if job in job_ids]
        if not members:
            return None
        return GroupChanges(self._device.number, holders=[key.holds(member, GIVEN) for member in members])

    def _open(self, row: OwnKey) -> e2ee.SenderKeyRecord | None:
        try:
            opened = self._device.sealer.open(row.record, _context(row.account, row.group_id))
            record = e2ee.SenderKeyRecord.from_bytes(opened)
        except e2ee.CorruptState:
            log.exception("sender_key.corrupt", extra={"group": row.group_id})
            return None
        # As if there were none: the next message makes another key, and gives it to everybody.
        return record if record.is_portable else None


def _context(account: str, group_id: str) -> tuple[str, str, str, str]:
    return (account, "", "own_sender_key", group_id)
