"""Replays and purges of queue rows, done by the Coreapp that owns the shard.

Changes of callbacks in a shard without an owner are done by this process.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cli import coreapp_client, guard
from cli.coreapp_client import CoreappClient
from cli.counts import counted
from tidings.storage.business import callback_purges, callback_replays, callbacks, queue_views, shards
from tidings.storage.business.callback_purges import CallbackPurgeRow
from tidings.storage.business.callback_replays import Replay
from tidings.storage.business.shards import Owner
from tidings.storage.database import Connection, Database, pages
from tidings.wire import core

# Rows per request to a Coreapp.
PAGE = 1000


class Count(NamedTuple):
    """Result of a change."""

    done: int  # rows that were changed as requested
    stay: int = 0  # rows left as they are, because they had changed or were sent before


@dataclasses.dataclass(eq=False, repr=False)
class QueueChanges:
    """Replays and purges the given callbacks and jobs of each shard.

    To change callbacks in a shard without an owner, this process claims the shard's lease for one transaction.
    """

    database: Database
    coreapps: CoreappClient
    _: dataclasses.KW_ONLY
    heartbeat_timeout: float  # seconds without a heartbeat after which an owner has lost its shard
    replay_rate: float = core.REPLAYS_PER_SECOND  # callbacks replayed per second, after the first page

    def __post_init__(self) -> None:
        self._who = coreapp_client.operator()

    async def replay(self, seqs: Mapping[int, Sequence[int]]) -> int:
        """Make failing callbacks due now and dead letters pending again. Returns their number.

        Raises `CommandFailure`, for example when the owner's queue is full; its text has the number changed before.

        seqs: `seq` of the callbacks, by shard.
        """

        def call(shard: int, page: Sequence[int]) -> Callable[[int], core.Request]:
            return lambda n: core.ReplayCallbacks(n, list(page), self._who, shard)

        async def alone(connection: Connection, shard: int, page: Sequence[int]) -> Count:
            now = int(time.time() * 1000)
            revived = await callbacks.take_dead(connection, shard, now, page)
            due = await callbacks.make_due(connection, shard, page)
            notes = [Replay(seq, now, shard, self._who) for seq in (*(row.seq for row in revived), *due)]
            await callback_replays.add(connection, notes)
            return Count(len(notes))

        return (await self._change(seqs, call, alone, rate=self.replay_rate)).done

    async def purge(self, seqs: Mapping[int, Sequence[int]], choice: str, statuses: Sequence[str]) -> Count:
        """Delete the callbacks that still have one of `statuses`. Raises `CommandFailure`.

        seqs: `seq` of the callbacks, by shard.
        choice: description of the selection, for the audit entry.
        """

        def call(shard: int, page: Sequence[int]) -> Callable[[int], core.Request]:
            return lambda n: core.PurgeCallbacks(n, list(page), self._who, choice, shard, list(statuses))

        async def alone(connection: Connection, shard: int, page: Sequence[int]) -> Count:
            found = await queue_views.read_statuses(connection, shard, page)
            changed = queue_views.changed_since(found, statuses)
            deleted = await callbacks.purge(connection, shard, [seq for seq in page if seq not in changed])
            await callback_purges.add(
                connection, CallbackPurgeRow(int(time.time() * 1000), shard, self._who, choice, deleted)
            )
            return Count(deleted, len(changed))

        return await self._change(seqs, call, alone)

    async def purge_jobs(self, ids: Mapping[int, Sequence[str]], choice: str, statuses: Sequence[str]) -> Count:
        """Delete messages that were never sent. Raises `CommandFailure`, also when a shard has no owner.

        Only the owner of the shard can report that they have failed, because callbacks are sealed.

        ids: ids of the messages, by shard.
        choice, statuses: as for `purge`.
        """
        owners = await self._owners()
        done = stay = 0
        for shard, named in ids.items():
            owner = owners.get(shard)
            if owner is None or not owner.address:
                raise guard.CommandFailure(
                    f"no Coreapp owns shard {shard}, which only its owner may change: {done} were deleted"
                )
            for page in pages(named, PAGE):
                answer = await self.coreapps.call(
                    owner.address,
                    lambda n, shard=shard, page=page: core.PurgeJobs(  # type: ignore[misc]
                        n, list(page), self._who, choice, shard, list(statuses)
                    ),
                )
                count = _count_of(answer, owner)
                done, stay = done + count.done, stay + count.stay
        return Count(done, stay)

    async def _owners(self) -> Mapping[int, Owner]:
        async with self.database.reading() as connection:
            return await shards.map_owners(connection)

    async def _change(
        self,
        seqs: Mapping[int, Sequence[int]],
        call: Callable[[int, Sequence[int]], Callable[[int], core.Request]],
        alone: Callable[[Connection, int, Sequence[int]], Awaitable[Count]],
        *,
        rate: float = math.inf,
    ) -> Count:
        """rate: changes per second."""
        owners = await self._owners()
        done = stay = due = 0
        for shard, named in seqs.items():
            for page in pages(named, PAGE):
                await asyncio.sleep(due / rate)
                try:
                    count = await self._change_page(
                        owners.get(shard), shard, call(shard, page), _of(alone, shard, page)
                    )
                except guard.CommandFailure as failure:
                    raise guard.CommandFailure(
                        f"{failure} ({counted(done, 'callback was', 'callbacks were')} changed before)"
                    ) from None
                done, stay, due = done + count.done, stay + count.stay, count.done
        return Count(done, stay)

    async def _change_page(
        self,
        owner: Owner | None,
        shard: int,
        call: Callable[[int], core.Request],
        work: Callable[[Connection], Awaitable[Count]],
    ) -> Count:
        if owner is None or not owner.address:
            return await self._in_its_place(shard, work)
        try:
            answer = await self.coreapps.call(owner.address, call)
        except guard.CommandFailure as failure:
            # The owner may have died; then its lease can be claimed once it has expired.
            try:
                return await self._in_its_place(shard, work)
            except guard.CommandFailure:
                raise failure from None
        return _count_of(answer, owner)

    async def _in_its_place(self, shard: int, work: Callable[[Connection], Awaitable[Count]]) -> Count:
        """Run the work in one transaction that claims and releases the shard's lease.

        Raises `CommandFailure` when the lease of an owner has not expired.
        """
        async with self.database.transaction() as connection:
            lease = await shards.claim(
                connection, shard, owner="tidings queue", address="", heartbeat_timeout=self.heartbeat_timeout
            )
            if lease is None:
                raise guard.CommandFailure(f"the owner of shard {shard} does not respond: try again in a minute")
            changed = await work(connection)
            await shards.release(connection, lease)
            return changed


def _count_of(answer: Any, owner: Owner) -> Count:
    """Return the counts in a Coreapp's response. Raises `CommandFailure` for an unexpected response."""
    if not isinstance(answer, core.Replayed | core.Purged):
        raise guard.CommandFailure(f"the Coreapp at {owner.address} answered {answer!r}")
    return Count(answer.count, answer.changed if isinstance(answer, core.Purged) else 0)


def _of(
    work: Callable[[Connection, int, Sequence[int]], Awaitable[Count]], shard: int, page: Sequence[int]
) -> Callable[[Connection], Awaitable[Count]]:
    return lambda connection: work(connection, shard, page)
