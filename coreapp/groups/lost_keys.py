"""Repeated handover of the business's sender keys to participants who lost them or were refused them."""

from __future__ import annotations

import asyncio
import dataclasses

from coreapp.context import ShardContext
from coreapp.groups import cross_shard
from coreapp.groups.cross_shard import CrossShardMessages
from coreapp.groups.own_keys import OwnKeys
from coreapp.groups.replica import GroupReplicas
from coreapp.journal.change import Change
from tidings.aio import service
from tidings.storage.business.group_changes import GroupChanges


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class LostKeys:
    """Keys of one account that participants lack. They are sent before the next message at the latest. Other shards
    than the first let that one send them.
    """

    context: ShardContext
    replicas: GroupReplicas
    own: OwnKeys
    notes: CrossShardMessages
    _background: set[asyncio.Task[None]] = dataclasses.field(default_factory=set, init=False)

    async def resend(self, member: str) -> None:
        """Send our keys to a participant to whom they were refused while their identity was unacknowledged."""
        if not self.context.lease.is_first:
            note = self.notes.to_first(cross_shard.LOST, member)
            await self._write(GroupChanges(self.context.account, notes=(note,)))
            self.context.shared.wakeups.wake(self.context.lease.first_shard)
            return
        shared = list(self.replicas.groups_of(member))
        await self.own.load(shared)
        holders = [holder for group_id in shared for holder in self.own.in_memory(group_id).lost_by(member)]
        if holders:
            await self._write(GroupChanges(self.context.account, holders=holders))

    def resend_soon(self, member: str) -> None:
        """Call `resend` in the background."""
        task = asyncio.create_task(self.resend(member), name=f"keys of {member}")
        self._background.add(task)
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Cancel pending work; the next owner does it."""
        await service.cancel(self._background)

    async def _write(self, groups: GroupChanges) -> None:
        await self.context.journal.write(Change(self.context.account, groups=groups))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The database is unreachable for long, or the shard is lost: it must be reopened in both cases.
            self.context.journal.fail(error)
