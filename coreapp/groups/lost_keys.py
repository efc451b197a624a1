"""Repeated handover of the business's sender keys to participants who lost them or were refused them."""

from __future__ import annotations

import asyncio

from coreapp.context import ShardContext
from coreapp.groups.own_keys import OwnKeys
from coreapp.groups.replica import GroupReplicas
from coreapp.journal import Change
from tidings.storage.business.group_changes import GroupChanges


class LostKeys:
    """Keys of one account that participants lack. They are sent before the next message at the latest."""

    def __init__(self, context: ShardContext, replicas: GroupReplicas, own: OwnKeys) -> None:
        self._journal = context.journal
        self._account = context.account
        self._replicas = replicas
        self._own = own
        self._background: set[asyncio.Task[None]] = set()

    async def give_again(self, member: str) -> None:
        """Send our keys to a participant to whom they were refused while their identity was unacknowledged."""
        shared = list(self._replicas.groups_of(member))
        await self._own.load(shared)
        holders = [holder for group_id in shared for holder in self._own.in_memory(group_id).lost_by(member)]
        if holders:
            await self._journal.write(Change(self._account, groups=GroupChanges(self._account, holders=holders)))

    def give_again_soon(self, member: str) -> None:
        """Call `give_again` in the background."""
        task = asyncio.create_task(self.give_again(member), name=f"keys of {member}")
        self._background.add(task)
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Cancel pending work; the next owner does it."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The database is unreachable for long, or the shard is lost: it must be reopened in both cases.
            self._journal.fail(error)
