"""What one shard collects that nobody asks for any more."""

from __future__ import annotations

from coreapp.context import ShardContext
from coreapp.garbage import MEDIA, MESSAGE, UNUSED_MEDIA, Collector, GarbageCollector, MessageCollector, old_rows
from coreapp.media.wiring import Media
from coreapp.recovery.collector import KEPT, KeptCollector


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
    return GarbageCollector(
        collectors,
        lambda: context.config.settings,
        context.journal,
        clock=context.clock,
        account=context.account,
        shard=context.shard,
        node=settings.node,
    )
