"""Store of files that several processes share: what every kind of store promises."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Protocol

from prometheus_client import Counter

from tidings.media.reading import Reader
from tidings.objects.marker import MarkedStore

WRITTEN = Counter("tidings_media_written_bytes_total", "Bytes of files that were kept")

# Bytes that `check` sees of a file, and that a directory writes at a time.
BLOCK = 256 * 1024

Check = Callable[[bytes], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """A file that is durable. name: its random name in the store; size: bytes; sha256: in hex."""

    name: str
    size: int
    sha256: str


class FileStore(MarkedStore, Protocol):
    """Files under random names, each there whole or not at all. Every method raises `StoreAway` while the store cannot
    be used, which says nothing about any file.
    """

    async def write(self, chunks: AsyncIterable[bytes], *, limit: int, check: Check | None = None) -> Stored:
        """Store a file with bounded memory; it is durable when this returns.

        limit: bytes; check: sees the first 256 KiB, or all of a smaller file, before anything is written. Raises
        `FileTooLarge`, `FileEmpty`, `DiskFull`, `StoreAway`, and whatever `chunks` and `check` raise; nothing is left
        then.
        """
        ...

    async def open(self, name: str) -> OpenFile:
        """A file, to be read from its beginning. Raises `FileGone`, and `OSError` when it cannot be read now."""
        ...

    async def delete(self, names: Iterable[str]) -> int:
        """Remove files; the number of those that are gone by this."""
        ...

    def list_old(self, before: float) -> AsyncIterator[list[str]]:
        """Pages of names of files, unfinished ones too, that were last written before a time (Unix seconds)."""
        ...

    async def has_room(self) -> bool:
        """Whether a byte may be stored. Raises `OSError`."""
        ...

    def place(self, name: str) -> str:
        """Where a file is, as the business is told: a path, or an `s3:` URL."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class OpenFile:
    """size: bytes; reader: to be closed."""

    size: int
    reader: Reader


async def open_reader(files: FileStore, name: str) -> Reader:
    """The reader of a file. Raises as `FileStore.open`."""
    return (await files.open(name)).reader
