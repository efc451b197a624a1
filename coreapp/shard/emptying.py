"""Deletion of everything that a shard has queued and recorded, for tests that start again (`POST /tidings/reset`)."""

from __future__ import annotations

import asyncio

from coreapp.errors import RequestRefused
from coreapp.history_retention import HistoryCollector
from coreapp.shard.open_shards import OpenShards
from coreapp.shard.shard import Shard
from tidings.aio.clock import Clock
from tidings.storage.business import messages, queue_views
from tidings.storage.business.queue_views import RowFilter
from tidings.wire import codes

BY = "POST /tidings/reset"
PAGE = 1000  # rows that one transaction deletes
PAUSE = 0.05  # seconds between two attempts to delete what is being sent or posted
SECONDS = 10.0  # seconds to wait for messages being sent and callbacks being posted


async def empty_all(shards: OpenShards) -> int:
    """Empty the shards of this process. Returns the number of deleted jobs and callbacks.

    Raises `RequestRefused` unless the process is in test mode and belongs to an embedded installation.
    """
    settings = [shard.context.settings for shard in shards]
    if not all(of.testing and of.embedded for of in settings):
        details = "POST /tidings/reset needs a Coreapp with TIDINGS_TESTING=1 and TIDINGS_EMBEDDED=1 (tidings up)"
        raise RequestRefused(codes.ACCESS_DENIED, details)
    return sum([await empty(shard) for shard in shards])


async def empty(shard: Shard) -> int:
    """Delete the jobs, the callbacks and then the messages of a shard, and its number's history. Returns the number of
    jobs and callbacks.

    Jobs and callbacks that are still in progress after `SECONDS` stay. Raises `LeaseLost`.
    """
    context, deleted = shard.context, 0
    choice, deadline = RowFilter(shard=context.shard), context.clock.monotonic() + SECONDS
    while jobs := await context.database.query(
        lambda connection: queue_views.list_jobs(connection, choice, limit=PAGE)
    ):
        purged = (await shard.accepting.purge.purge([job.id for job in jobs], BY, BY)).deleted
        deleted += purged
        if not purged and await _gives_up(context.clock, deadline):
            break
    while callbacks := await context.database.query(
        lambda connection: queue_views.list_callbacks(connection, choice, limit=PAGE)
    ):
        purged = (await shard.webhook.purge.purge([row.seq for row in callbacks], BY, BY)).deleted
        deleted += purged
        if not purged and await _gives_up(context.clock, deadline):
            break
    while await context.persist(lambda connection: messages.delete_unqueued(connection, context.shard, PAGE)):
        pass
    shard.accepting.jobs.evict_messages()
    if context.lease.is_first:
        await HistoryCollector(context, 0)()
    return deleted


async def _gives_up(clock: Clock, deadline: float) -> bool:
    """Return whether the deadline has passed; otherwise pause before the next attempt. Purges are never cancelled."""
    if clock.monotonic() >= deadline:
        return True
    await asyncio.sleep(PAUSE)
    return False
