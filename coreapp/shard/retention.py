"""Wiring of the deletion of expired rows: each shard deletes its own rows, the first shard those of all others."""

from __future__ import annotations

from coreapp.context import ShardContext
from coreapp.media.wiring import ShardMedia
from coreapp.recovery.collector import KEPT, KeptCollector
from coreapp.retention import (
    DEAD_CALLBACKS,
    MEDIA,
    MESSAGE,
    UNUSED_MEDIA,
    Collector,
    MessageCollector,
    RetentionService,
    old_rows,
)

# Kinds that every shard deletes. The other kinds scan tables that belong to all shards, including removed ones.
OF_EACH_SHARD = (DEAD_CALLBACKS,)


def wire_retention(context: ShardContext, media: ShardMedia) -> RetentionService:
    """Return the service of a shard that deletes expired rows and files."""
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
    return RetentionService(
        collectors,
        lambda: context.config.settings,
        context.journal,
        clock=context.clock,
        account=context.account,
        shard=context.shard,
        node=settings.node,
    )
