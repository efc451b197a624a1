"""Replicas of the groups of the business: in memory, on disk, and updated from the network."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Collection, Iterable, Sequence

from coreapp.context import ShardContext
from coreapp.journal.change import Change
from tidings.aio import service
from tidings.client.errors import NetworkRefusal, NetworkUnavailable, NoSuchGroup
from tidings.client.groups import GroupApi
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.groups import StoredGroup
from tidings.wire.groups import DescribedGroup

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5  # seconds between two calls after the network did not respond


@dataclasses.dataclass(eq=False, repr=False)
class GroupReplicas:
    """All groups of one account; the network limits a number to 10,000.

    Notices are applied as they arrive. A group that they leave incomplete is fetched.
    """

    context: ShardContext
    api: GroupApi
    groups: dataclasses.InitVar[Iterable[StoredGroup]]

    def __post_init__(self, groups: Iterable[StoredGroup]) -> None:
        self._groups: dict[str, StoredGroup] = {}
        # By participant: ids of the groups shared with them.
        self._memberships: dict[str, set[str]] = {}
        # Changes per group, so that an older response does not overwrite a newer state.
        self._versions: dict[str, int] = {}
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._syncing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        for group in groups:
            self._index(group)

    def find(self, group_id: str) -> StoredGroup | None:
        """Return a group, including those that the business has left; None if it is unknown."""
        return self._groups.get(group_id)

    def list_groups(self) -> Sequence[StoredGroup]:
        """Return the groups of the business, oldest first."""
        return sorted((g for g in self._groups.values() if g.is_member), key=lambda g: (g.created_at, g.id))

    def groups_of(self, number: str) -> Collection[str]:
        """Return the groups that the business shares with this participant."""
        return self._memberships.get(number, ())

    def take(self, group: StoredGroup) -> None:
        """Replace the replica in memory. The caller writes it to disk."""
        self._versions[group.id] = self._versions.get(group.id, 0) + 1
        self._index(group)

    def version(self, group_id: str) -> int:
        """Return the number of changes to a group's replica."""
        return self._versions.get(group_id, 0)

    async def keep(self, response: DescribedGroup, since: int) -> None:
        """Apply a response of the network and write it to disk.

        since: version of the replica when the call was made
        """
        group = _replica(self.context.account, response)
        if self.version(group.id) != since:
            # A notice has arrived since the call, and may be newer than the response.
            try:
                await self.refresh(group.id)
            except NetworkUnavailable:
                self.refresh_soon(group.id)
        else:
            await self._write(group)

    async def refresh(self, group_id: str) -> StoredGroup | None:
        """Fetch the group from the network and return it; None if it is unknown. Raises `NetworkUnavailable`."""
        while True:
            version = self._versions.get(group_id, 0)
            try:
                group = _replica(self.context.account, await self.api.fetch(group_id))
            except NoSuchGroup:
                known = self._groups.get(group_id)
                if known is None or not known.is_member:
                    return known
                group = dataclasses.replace(known, is_member=False)
            except NetworkRefusal as refusal:
                raise NetworkUnavailable(f"{refusal.reason}: {refusal}") from refusal
            if version == self._versions.get(group_id, 0):
                break
        await self._write(group)
        return group

    async def _write(self, group: StoredGroup) -> None:
        if group != self._groups.get(group.id):
            self.take(group)
            account = self.context.account
            await self.context.journal.write(Change(account, groups=GroupChanges(account, groups=(group,))))

    def refresh_soon(self, group_id: str) -> None:
        """Fetch a group in the background, until the network responds."""
        if group_id not in self._fetching and not self._closing.is_set():
            task = asyncio.create_task(self._refresh_patiently(group_id), name=f"group {group_id}")
            self._fetching[group_id] = task
            task.add_done_callback(lambda _: self._fetching.pop(group_id, None))
            task.add_done_callback(_note_end)

    def sync_soon(self) -> None:
        """Compare all groups with the network's in the background."""
        if (self._syncing is None or self._syncing.done()) and not self._closing.is_set():
            self._syncing = asyncio.create_task(self._sync_patiently(), name="groups")
            self._syncing.add_done_callback(_note_end)

    async def close(self) -> None:
        """Cancel pending work; the next owner compares again."""
        self._closing.set()
        await service.cancel([*self._fetching.values(), *([self._syncing] if self._syncing else [])])

    async def sync(self) -> None:
        """Fetch the groups that differ from the network's list. Raises `NetworkUnavailable` and `NetworkRefusal`."""
        known = {group.id for group in self.list_groups()}
        listed = {group.id: group for group in await self.api.list_mine()}
        differing = [group.id for group in listed.values() if self._differs(group)]
        for group_id in [*differing, *sorted(known - listed.keys())]:
            await self.refresh(group_id)
        if differing:
            log.info("groups.synced", extra={"groups": len(listed), "fetched": len(differing)})

    def _differs(self, listed: DescribedGroup) -> bool:
        known = self._groups.get(listed.id)
        if known is None or not known.is_member:
            return True
        return (known.epoch, known.subject, known.has_icon) != (listed.epoch, listed.subject, listed.has_icon)

    async def _refresh_patiently(self, group_id: str) -> None:
        while not self._closing.is_set():
            try:
                await self.refresh(group_id)
                return
            except NetworkUnavailable as error:
                log.warning("group.waiting", extra={"group": group_id, "error": str(error)})
            await service.wait_for(self._closing, RETRY_SECONDS)

    async def _sync_patiently(self) -> None:
        while not self._closing.is_set():
            try:
                await self.sync()
                return
            except NetworkUnavailable as error:
                log.warning("groups.waiting", extra={"error": str(error)})
            except NetworkRefusal as error:
                log.warning("groups.refused", extra={"error": str(error)})
                return
            await service.wait_for(self._closing, RETRY_SECONDS)

    def _index(self, group: StoredGroup) -> None:
        before = self._groups.get(group.id)
        if before is not None:
            for number, _ in before.participants:
                groups = self._memberships.get(number)
                if groups is not None:
                    groups.discard(group.id)
                    if not groups:
                        del self._memberships[number]
        self._groups[group.id] = group
        if group.is_member:
            for number, _ in group.participants:
                if number != self.context.account:
                    self._memberships.setdefault(number, set()).add(group.id)


def _replica(account: str, found: DescribedGroup) -> StoredGroup:
    return StoredGroup(
        account,
        found.id,
        found.subject,
        found.creator,
        found.created_at,
        found.epoch,
        tuple((participant.number, participant.admin) for participant in found.participants),
        found.has_icon,
        any(participant.number == account for participant in found.participants),
    )


def _note_end(task: asyncio.Task[None]) -> None:
    """Log a failed write. The journal reports its own failure, and the next owner fetches the group again."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("groups.not_written", extra={"error": repr(error)})
