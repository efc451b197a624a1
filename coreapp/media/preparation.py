"""Preparation of a message's content for its recipient: each file becomes a pointer from which a handset can fetch it.

A file is encrypted and uploaded to the network once, however many messages name it. Messages that arrive during the
upload wait for it, and later ones use the pointer in memory.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from typing import Protocol

from prometheus_client import Counter

from coreapp.media.errors import MediaFailed, SourceFailed
from coreapp.media.pointers import MediaContent, MediaSource
from coreapp.media.uploads import HeldUp
from tidings.aio import service
from tidings.aio.clock import Clock
from tidings.aio.lru import LRU
from tidings.wire import codes
from tidings.wire.media_objects import FilePointer

REMEMBERED = 10_000  # pointers, half a kilobyte each; evicted ones are determined again

POINTERS = Counter("tidings_media_pointers_total", "Files named by messages, by place of their pointer", ["found"])

_in_memory = POINTERS.labels("memory")
_made = POINTERS.labels("made")
_failed = POINTERS.labels("failed")


@dataclasses.dataclass(frozen=True, slots=True)
class FoundMedia:
    """Pointer of a file with its validity."""

    pointer: FilePointer
    until: float  # Unix seconds up to which the pointer may be used from memory


class MediaOrigin(Protocol):
    """Source of files."""

    async def find(self, source: MediaSource, held_up: HeldUp) -> FoundMedia:
        """Return the pointer of a file. Waits while the network or the disk is unusable, and calls `held_up` for each
        failed attempt. Raises `SourceFailed`.
        """
        ...


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Preparation:
    """Prepares the contents of one account.

    Any number of callers may prepare at once: the origins limit concurrent work, and the job queue's limit bounds the
    callers.
    """

    stored: MediaOrigin  # files by id
    linked: MediaOrigin  # files by link
    clock: Clock
    parse: Callable[[bytes], MediaContent] = MediaContent  # finds the files to prepare
    # Blobs that do not exist any more before their time.
    lost: LRU[str, bool] = dataclasses.field(default_factory=lambda: LRU(REMEMBERED))
    _known: LRU[MediaSource, FoundMedia] = dataclasses.field(default_factory=lambda: LRU(REMEMBERED), init=False)
    _under_way: dict[MediaSource, asyncio.Task[FilePointer | SourceFailed]] = dataclasses.field(
        default_factory=dict, init=False
    )
    # Callbacks of the callers that wait for each source, to be notified of its failed attempts.
    _listeners: dict[MediaSource, list[HeldUp]] = dataclasses.field(default_factory=dict, init=False)

    def at_once(self, content: bytes) -> bytes | None:
        """Return the content with its pointers if all of them are in memory, otherwise None."""
        try:
            parsed = self.parse(content)
        except ValueError:
            return None
        for path, source in parsed.sources().items():
            pointer = self._remembered(source)
            if pointer is None:
                return None
            parsed.point(path, pointer)
        _in_memory.inc()
        return parsed.encoded()

    async def prepare(self, content: bytes, held_up: HeldUp) -> bytes:
        """Return the content with its pointers. Waits while the network or the disk is unusable, and calls `held_up`
        for each failed attempt.

        Raises `MediaFailed`. May be cancelled; transfers that other callers wait for continue.
        """
        try:
            parsed = self.parse(content)
        except ValueError as error:
            raise MediaFailed(codes.MESSAGE_FAILED, "the stored message cannot be read") from error
        sources = parsed.sources()
        named = set(sources.values())
        for source in named:
            self._listeners.setdefault(source, []).append(held_up)
        try:
            wanted = {path: self._fetch(source) for path, source in sources.items()}
            for path, task in wanted.items():
                found = await asyncio.shield(task)
                if isinstance(found, SourceFailed):
                    raise MediaFailed(found.code, f"{path}.{found.part}: {found.why}")
                parsed.point(path, found)
        finally:
            for source in named:
                self._remove_listener(source, held_up)
        return parsed.encoded()

    def invalidate(self, blobs: Iterable[str]) -> None:
        """Use no pointers to these blobs any more: they do not exist, and their files are uploaded again."""
        for blob in blobs:
            self.lost.put(blob, True)

    async def close(self) -> None:
        """Cancel all transfers. Waiting callers are cancelled, and their messages are on disk."""
        await service.cancel(self._under_way.values())

    @property
    def under_way(self) -> int:
        """Files that are being fetched or uploaded for messages."""
        return len(self._under_way)

    def _remembered(self, source: MediaSource) -> FilePointer | None:
        found = self._known.get(source)
        if found is None or found.until <= self.clock.now() or found.pointer.blob in self.lost:
            return None
        return found.pointer

    def _fetch(self, source: MediaSource) -> asyncio.Task[FilePointer | SourceFailed]:
        task = self._under_way.get(source)
        if task is None:
            task = self._under_way[source] = asyncio.create_task(self._find(source), name="media")
            task.add_done_callback(lambda done: self._done(source, done))
        return task

    async def _find(self, source: MediaSource) -> FilePointer | SourceFailed:
        """Return the pointer, or why there is none.

        A task that raised would keep the frames of its error, and these the connection, until a collection.
        """
        pointer = self._remembered(source)
        if pointer is not None:
            return pointer
        origin = self.stored if source.id else self.linked
        try:
            found = await origin.find(source, lambda why: self._report_delay(source, why))
        except SourceFailed as failed:
            return SourceFailed(failed.code, failed.part, failed.why)
        self._known.put(source, found)
        _made.inc()
        return found.pointer

    def _report_delay(self, source: MediaSource, why: str) -> None:
        for held_up in self._listeners.get(source, ()):
            held_up(why)

    def _remove_listener(self, source: MediaSource, held_up: HeldUp) -> None:
        listeners = self._listeners[source]
        listeners.remove(held_up)
        if not listeners:
            del self._listeners[source]

    def _done(self, source: MediaSource, done: asyncio.Task[FilePointer | SourceFailed]) -> None:
        del self._under_way[source]
        # Waiting callers get an unexpected error. There may be none left, so it is retrieved here.
        if not done.cancelled() and (done.exception() is not None or isinstance(done.result(), SourceFailed)):
            _failed.inc()
