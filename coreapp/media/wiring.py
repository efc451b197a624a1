"""Wiring of media for one shard."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from coreapp.context import ShardContext
from coreapp.media.collector import MediaCollector
from coreapp.media.downloads import Downloads
from coreapp.media.fetching import Fetcher
from coreapp.media.links import LinkedMedia
from coreapp.media.pointers import MediaContent
from coreapp.media.preparation import Preparation
from coreapp.media.preparation_queue import PreparationQueue
from coreapp.media.stored import OF_NETWORK, StoredMedia
from coreapp.media.uploads import Uploader
from coreapp.retention import DAY_MS
from coreapp.sending.wiring import Sending


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShardMedia:
    """Media parts of one shard."""

    preparation: Preparation
    preparation_queue: PreparationQueue  # queue of messages with files
    downloads: Downloads  # downloads of files that recipients sent
    collector: MediaCollector  # deletes unused files, if the business's settings enable it
    unused_collector: MediaCollector  # deletes files unused for longer, whatever the business's settings are

    async def close(self) -> None:
        """Leave waiting messages to the next owner. The downloads must have been stopped."""
        await self.preparation_queue.close()
        await self.preparation.close()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileExchange:
    """Where the files of messages go to and come from: the network, or what takes its place."""

    uploader: Uploader
    fetcher: Fetcher
    parse: Callable[[bytes], MediaContent] = MediaContent  # finds the files to upload
    sealed_as: str = OF_NETWORK  # name under which pointers are sealed

    @classmethod
    def of_network(cls, context: ShardContext) -> FileExchange:
        fetcher = Fetcher(
            context.network,
            context.device,
            context.files,
            working=context.working.directory,
            clock=context.clock,
        )
        return cls(uploader=Uploader(context.network, context.device, context.shared.uploads), fetcher=fetcher)


def wire_media(context: ShardContext, sending: Sending, exchange: FileExchange | None = None) -> ShardMedia:
    """Create the parts without starting them.

    exchange: None for the network
    """
    exchange = exchange or FileExchange.of_network(context)
    settings, files, working = context.settings, context.files, context.working
    stored = StoredMedia(context, files, exchange.uploader, sealed_as=exchange.sealed_as)
    linked = LinkedMedia(context, working, exchange.uploader)
    preparation = Preparation(stored, linked, context.clock, exchange.parse, stored.lost)
    queue = PreparationQueue(
        preparation,
        forward=sending.encryption.enqueue,
        fail=sending.transmitter.fail,
        held_up=sending.failures.note,
        broken=context.journal.fail,
    )

    collector = functools.partial(MediaCollector, context, files, working=None if working is files else working)
    return ShardMedia(
        preparation=preparation,
        preparation_queue=queue,
        downloads=Downloads(context, exchange.fetcher),
        collector=collector(),
        unused_collector=collector(unused_ms=settings.media_days * DAY_MS),
    )
