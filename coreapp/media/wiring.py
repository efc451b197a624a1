"""Files on their way, wired for one shard."""

from __future__ import annotations

import dataclasses

from coreapp.context import ShardContext
from coreapp.garbage import DAY_MS
from coreapp.media.collector import MediaCollector
from coreapp.media.downloads import Downloads
from coreapp.media.fetching import Fetcher
from coreapp.media.links import LinkedMedia
from coreapp.media.preparation import Preparation
from coreapp.media.preparation_queue import PreparationQueue
from coreapp.media.stored import StoredMedia
from coreapp.media.uploads import Uploader
from coreapp.sending.wiring import Sending
from coreapp.webhook.wiring import Webhook


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """preparation_queue: messages with files; downloads: files that recipients sent; collector: of files that nobody
    uses; unused_collector: of those that nobody has used for longer, whatever the business's settings say."""

    preparation: Preparation
    preparation_queue: PreparationQueue
    downloads: Downloads
    collector: MediaCollector
    unused_collector: MediaCollector

    async def close(self) -> None:
        """Leave the messages that wait to the next owner; the downloads must have been stopped."""
        await self.preparation_queue.close()
        await self.preparation.close()


def wire_media(context: ShardContext, webhook: Webhook, sending: Sending) -> Media:
    """The parts, none started."""
    settings, files, working = context.settings, context.files, context.working
    uploader = Uploader(context.network, context.device, context.shared.uploads)
    preparation = Preparation(
        StoredMedia(context, files, uploader), LinkedMedia(context, working, uploader), context.clock
    )
    queue = PreparationQueue(
        preparation,
        forward=sending.encryption.enqueue,
        fail=sending.transmitter.fail,
        held_up=sending.failures.note,
        broken=context.journal.fail,
    )

    fetcher = Fetcher(context.network, context.device, files, working=working.directory, clock=context.clock)

    def collector(**more: int) -> MediaCollector:
        return MediaCollector(
            context.database,
            context.lease,
            files,
            working=None if working is files else working,
            clock=context.clock,
            account=context.account,
            **more,
        )

    return Media(
        preparation=preparation,
        preparation_queue=queue,
        downloads=Downloads(context, fetcher, webhook.rows),
        collector=collector(),
        unused_collector=collector(unused_ms=settings.media_days * DAY_MS),
    )
