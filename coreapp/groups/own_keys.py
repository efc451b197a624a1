"""The business's own sender keys: one per group that it sends to, with its holders."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from prometheus_client import Counter

from coreapp.account.own_device import OwnDevice
from coreapp.context import ShardContext
from tidings import e2ee
from tidings.client import sender_keys
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.sender_keys import GIVEN, LACKS, KeyHolder, OwnKey, list_holders, list_own

log = logging.getLogger(__name__)

MADE = Counter("tidings_sender_keys_made_total", "Own sender keys created, by reason", ["reason"])


class OwnGroupKey:
    """Key of one group. All changes are made in memory first, in the order in which they go to the journal."""

    __slots__ = ("_account", "_device", "_group_id", "epoch", "holders", "record")

    def __init__(self, device: OwnDevice, group_id: str) -> None:
        self._device = device
        self._account = device.number
        self._group_id = group_id
        self.record: e2ee.SenderKeyRecord | None = None  # None until the first message
        self.epoch = 0
        self.holders: dict[str, str] = {}  # by participant: the job that hands the key over, or `GIVEN` or `LACKS`

    def renew(self, epoch: int) -> Sequence[str]:
        """Replace the key by a new one without holders. Returns the groups whose holder rows must be cleared.

        Messages encrypted with the old key stay readable for its holders.
        """
        MADE.labels("new group" if self.record is None else "somebody left").inc()
        self.record = sender_keys.replace(self.record)
        self.epoch = epoch
        self.holders.clear()
        return (self._group_id,)

    def holds(self, member: str, job: str) -> KeyHolder:
        """Set the state of a holder. Returns its row."""
        self.holders[member] = job
        return KeyHolder(self._account, self._group_id, member, job)

    def lost_by(self, member: str) -> Sequence[KeyHolder]:
        """Mark a participant as lacking the key if they ever had it. Returns the rows to write."""
        return (self.holds(member, LACKS),) if member in self.holders else ()

    def sealed(self) -> OwnKey:
        """Return the row of the present key."""
        assert self.record is not None
        blob = self._device.sealer.seal(self.record.to_bytes(), context=_context(self._account, self._group_id))
        return OwnKey(self._account, self._group_id, self.epoch, blob)


def without(holders: Mapping[str, str], members: Iterable[str]) -> Sequence[str]:
    """Return the members who do not have the key and to whom it is not being sent."""
    return sender_keys.members_without_key({member for member, job in holders.items() if job != LACKS}, members)


def under_way(holders: Mapping[str, str]) -> bool:
    """Return whether the key is still being sent to a member."""
    return any(job not in (GIVEN, LACKS) for job in holders.values())


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class OwnKeys:
    """Own keys of one account that were used: at most one per group of the business."""

    context: ShardContext
    live: Collection[str]  # ids of jobs that an earlier owner left; a holder whose job is gone gets the key again
    _keys: dict[str, OwnGroupKey] = dataclasses.field(default_factory=dict, init=False)

    def in_memory(self, group_id: str) -> OwnGroupKey:
        """Return the key of a group, which must have been loaded."""
        return self._keys[group_id]

    def find(self, group_id: str) -> OwnGroupKey | None:
        """Return the key of a group; None if it was not loaded."""
        return self._keys.get(group_id)

    async def load(self, groups: Iterable[str]) -> None:
        """Load the keys of these groups."""
        missing = [group_id for group_id in dict.fromkeys(groups) if group_id not in self._keys]
        if not missing:
            return
        account = self.context.device.number
        async with self.context.database.reading() as connection:
            own = {row.group_id: row for row in await list_own(connection, account, missing)}
            holders = await list_holders(connection, account, missing)
        loaded = {group_id: OwnGroupKey(self.context.device, group_id) for group_id in missing}
        for group_id, row in own.items():
            loaded[group_id].record = self._open(row)
            loaded[group_id].epoch = row.epoch
        for holder in holders:
            lost = holder.job not in (GIVEN, LACKS) and holder.job not in self.live
            loaded[holder.group_id].holders[holder.member] = LACKS if lost else holder.job
        for group_id, key in loaded.items():
            # Another task may have loaded and used it during the read.
            self._keys.setdefault(group_id, key)

    def handed_over(self, job_ids: Collection[str], group_id: str) -> GroupChanges | None:
        """Mark the recipients of these ended jobs as holders: they have the key, or cannot get it. Returns the changes
        to commit; None for none.
        """
        key = self._keys[group_id]
        members = [member for member, job in key.holders.items() if job in job_ids]
        if not members:
            return None
        return GroupChanges(self.context.device.number, holders=[key.holds(member, GIVEN) for member in members])

    def _open(self, row: OwnKey) -> e2ee.SenderKeyRecord | None:
        try:
            opened = self.context.device.sealer.open(row.record, _context(row.account, row.group_id))
            record = e2ee.SenderKeyRecord.from_bytes(opened)
        except e2ee.CorruptState:
            log.exception("sender_key.corrupt", extra={"group": row.group_id})
            return None
        # A key whose distribution id some libraries refuse counts as none: the next message creates another key and
        # sends it to all members.
        return record if record.is_portable else None


def _context(account: str, group_id: str) -> tuple[str, str, str, str]:
    return (account, "", "own_sender_key", group_id)
