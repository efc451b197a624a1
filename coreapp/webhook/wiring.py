"""Wiring of callbacks, from the journal to the webhook, for one shard."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from coreapp.context import ShardContext
from coreapp.webhook.dead_letters import DeadLetters
from coreapp.webhook.delivery import Deliveries
from coreapp.webhook.direct_posts import DirectPosts
from coreapp.webhook.limit_events import LimitEvents
from coreapp.webhook.poster import Poster
from coreapp.webhook.purge import CallbackPurge
from coreapp.webhook.queue import CallbackAdmission, CallbackQueue
from coreapp.webhook.rehearsal import WebhookRehearsal
from coreapp.webhook.status_delay import StatusDelay
from coreapp.webhook.target import CurrentTargets
from coreapp.webhook.template_events import TemplateEvents
from tidings.storage.business import callbacks
from tidings.storage.business.callbacks import Callback
from tidings.testing import numbers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Callback parts of one shard."""

    delay: StatusDelay  # decides when a status is posted
    queue: CallbackQueue
    direct: DirectPosts  # posts statuses before they are committed
    admission: CallbackAdmission  # decides whether a status is posted
    deliveries: Deliveries  # service that posts the callbacks in the format of v1
    cloud_deliveries: Deliveries  # service that posts those in the format of the Cloud API
    dead_letters: DeadLetters
    purge: CallbackPurge
    template_events: TemplateEvents  # service of the first shard that reports changes of templates
    limit_events: LimitEvents  # service of the first shard that reports changed limits


def _poster(context: ShardContext, user_agent: str) -> Poster:
    return Poster(
        context.webhook_guard,
        timeout=context.settings.webhook_timeout,
        pace=context.shared.webhook_reads,
        revocations=context.settings.webhook_revocations,
        user_agent=user_agent,
    )


def _targets(context: ShardContext) -> CurrentTargets:
    settings = context.settings
    return CurrentTargets(
        context.config,
        any_2xx=settings.accept_any_2xx,
        statuses_per_post=settings.statuses_per_post,
        cloud_batch=settings.cloud_batch,
    )


async def _load(context: ShardContext, after: int, limit: int) -> Sequence[Callback]:
    """Return up to `limit` pending callbacks of the shard whose `seq` is above `after`, in the order of their `seq`."""
    page = await context.database.query(
        lambda connection: callbacks.list_pending(connection, context.shard, after=after, limit=limit)
    )
    found = context.bodies.open(page)
    now = await context.time_of_expiry() if found else 0
    for callback in found:
        callback.since = context.clock.monotonic_of(callback.created_at, now=now)
    return found


def wire_webhook(context: ShardContext) -> Webhook:
    """Wire the package. The queue is empty until it is started."""
    settings, config = context.settings, context.config

    extra = numbers.delay_of if settings.testing else None
    delay = StatusDelay(settings.status_delay, context.clock, extra=extra)
    queue = CallbackQueue(settings.callback_queue_limit, context.clock, functools.partial(_load, context))
    # The delay comes first: the due time of a status must be known when the queue gets it.
    context.journal.on_callbacks(delay.committed)
    context.journal.on_callbacks(queue.offer)
    if settings.cloud_user_ids:
        context.journal.on_callbacks(config.note_stored_users)
    target = _targets(context)
    admission = CallbackAdmission(
        target, queue, limit=settings.callback_queue_limit, refuses=settings.refuses_without_webhook
    )
    direct = DirectPosts(context.journal, queue, target, quarantine=context.quarantine, clock=context.clock)
    context.journal.before_statuses(direct.end_before)
    deliveries = Deliveries(
        queue,
        context.journal,
        target.v1,
        poster=_poster(context, callbacks.USER_AGENT),
        clock=context.clock,
        slots=context.shared.posts,
        quarantine=context.quarantine,
        keeps_attempts=settings.keeps_history,
        direct=direct,
        rehearsal=WebhookRehearsal(settings.data_dir) if settings.testing else None,
    )
    cloud_deliveries = Deliveries(
        queue,
        context.journal,
        target.cloud,
        poster=_poster(context, callbacks.CLOUD_USER_AGENT),
        clock=context.clock,
        slots=context.shared.cloud_posts,
        quarantine=context.quarantine,
        keeps_attempts=settings.keeps_history,
        direct=direct,
        is_cloud=True,
    )
    config.on_change(admission.settings_changed)
    config.on_change(deliveries.wake)
    config.on_change(cloud_deliveries.wake)
    return Webhook(
        delay=delay,
        queue=queue,
        direct=direct,
        admission=admission,
        deliveries=deliveries,
        cloud_deliveries=cloud_deliveries,
        dead_letters=DeadLetters(context, queue),
        purge=CallbackPurge(context, queue),
        template_events=TemplateEvents(context),
        limit_events=LimitEvents(context),
    )
