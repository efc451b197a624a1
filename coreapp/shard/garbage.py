"""What is deleted that nobody asks for any more: by each shard of its own rows, by the first one of all others."""

from __future__ import annotations

from coreapp.context import ShardContext
from coreapp.garbage import (
    DEAD_CALLBACKS,
    MEDIA,
    MESSAGE,
    UNUSED_MEDIA,
    Collector,
    GarbageCollector,
    MessageCollector,
    old_rows,
)
from coreapp.media.wiring import Media
from coreapp.recovery.collector import KEPT, KeptCollector

# The others look through tables that belong to all shards, some of which may be no more.
OF_EACH_SHARD = (DEAD_CALLBACKS,)


def wire_garbage(context: ShardContext, media: Media) -> GarbageCollector:
    """A service."""
    settings, of_shard = context.settings, (context.database, context.lease, context.clock)
    collectors: dict[str, Collector] = {
        MESSAGE: MessageCollector(*of_shard),
        MEDIA: media.collector,
        UNUSED_MEDIA: media.unused_collector,
        **old_rows(
            *of_shard,
            account=context.account,
            unread_days=settings.unread_days,
            dead_callback_days=settings.dead_callback_days,
        ),
        KEPT: KeptCollector(*of_shard),
    }
    if not context.lease.is_first:
        collectors = {kind: collectors[kind] for kind in OF_EACH_SHARD if kind in collectors}
    return GarbageCollector(
        collectors,
        lambda: context.config.settings,
        context.journal,
        clock=context.clock,
        account=context.account,
        shard=context.shard,
        node=settings.node,
    )
