"""Wiring of callbacks, from the journal to the webhook, for one shard."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from coreapp.context import ShardContext
from coreapp.webhook.callback_admission import CallbackAdmission
from coreapp.webhook.dead_letters import DeadLetters
from coreapp.webhook.delivery import Deliveries
from coreapp.webhook.poster import Poster
from coreapp.webhook.purge import CallbackPurge
from coreapp.webhook.queue import CallbackQueue
from coreapp.webhook.status_delay import StatusDelay
from coreapp.webhook.target import CurrentTarget
from tidings.storage.business import callbacks
from tidings.storage.business.callbacks import Callback


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Callback parts of one shard."""

    delay: StatusDelay  # decides when a status is posted
    queue: CallbackQueue
    admission: CallbackAdmission  # decides whether a status is posted
    deliveries: Deliveries  # service that posts the callbacks
    dead_letters: DeadLetters
    purge: CallbackPurge


def wire_webhook(context: ShardContext) -> Webhook:
    """Wire the package. The queue is empty until it is started."""
    settings, config = context.settings, context.config

    async def load(after: int, limit: int) -> Sequence[Callback]:
        page = await context.database.query(
            lambda connection: callbacks.list_pending(connection, context.shard, after=after, limit=limit)
        )
        return context.bodies.open(page)

    delay = StatusDelay(settings.status_delay, context.clock)
    queue = CallbackQueue(settings.callback_queue_limit, context.clock, load)
    # The delay comes first: the due time of a status must be known when the queue gets it.
    context.journal.on_callbacks(delay.committed)
    context.journal.on_callbacks(queue.offer)
    target = CurrentTarget(config, any_2xx=settings.accept_any_2xx)
    admission = CallbackAdmission(target, queue, limit=settings.callback_queue_limit, refuses=settings.refuses_unheard)
    poster = Poster(
        context.webhook_guard,
        timeout=settings.webhook_timeout,
        pace=context.shared.webhook_reads,
        revocations=settings.webhook_revocations,
    )
    deliveries = Deliveries(
        queue,
        context.journal,
        target,
        poster=poster,
        clock=context.clock,
        slots=context.shared.posts,
        quarantine=context.quarantine,
    )
    config.on_change(admission.settings_changed)
    config.on_change(deliveries.kick)
    return Webhook(
        delay=delay,
        queue=queue,
        admission=admission,
        deliveries=deliveries,
        dead_letters=DeadLetters(context, queue),
        purge=CallbackPurge(context, queue),
    )
