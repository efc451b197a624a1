"""Wiring of message statuses for one shard."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from coreapp.context import ShardContext
from coreapp.statuses.reports import StatusReports
from coreapp.statuses.tracker import StatusTracker
from coreapp.webhook.direct_posts import DirectPosts
from coreapp.webhook.wiring import Webhook
from tidings.storage.business import messages
from tidings.storage.business.jobs import Job
from tidings.wire import ids


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Statuses:
    tracker: StatusTracker
    reports: StatusReports
    direct: DirectPosts  # posts statuses before they are committed


async def wire_statuses(context: ShardContext, webhook: Webhook, left: Sequence[Job]) -> Statuses:
    """Wire the package.

    left: jobs of the previous owner, whose messages are held until their jobs leave the queue
    """
    tracker = StatusTracker()
    message_ids = [ids.message_of(job.id) for job in left]
    tracker.hold(message_ids)
    async with context.database.reading() as connection:
        tracker.load(await messages.list_progress(connection, context.account, list(dict.fromkeys(message_ids))))
    return Statuses(tracker=tracker, reports=StatusReports(context, tracker, webhook), direct=webhook.direct)
