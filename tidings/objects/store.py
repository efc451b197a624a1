"""File store that several processes share: the protocol of all kinds of store."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from prometheus_client import Counter

from tidings.media.reading import MediaReader

# Name of the marker file. Its dot keeps it distinct from names of stored files.
MARKER = ".tidings-store"


class Marker(msgspec.Struct, frozen=True):
    """Marker of a store. A file that cannot be read as a marker gives empty strings."""

    # `media` or `blobs`.
    store: str = ""
    # Random id of the database that records the store.
    database: str = ""
    # Random id of the store in that database.
    id: str = ""


def encode_marker(marker: Marker) -> bytes:
    """Return the content of the marker file."""
    return json.dumps(msgspec.to_builtins(marker)).encode() + b"\n"


def decode_marker(content: bytes) -> Marker:
    """Return the marker in a file; an empty one, which matches no record, for any other content."""
    try:
        return msgspec.json.decode(content, type=Marker)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Marker()


class MarkedStore(Protocol):
    """A file store that can hold a marker."""

    # Marker that the database records; `None` until it was compared.
    expected: Marker | None

    @property
    def is_local(self) -> bool:
        """Return whether the store is in a file system."""

    @property
    def location(self) -> str:
        """Location such as a path, for error texts."""

    def prepare(self) -> None:
        """Make the store if that is our task. Raises `OSError`."""

    async def read_marker(self) -> Marker | None:
        """Return the marker; `None` when there is none. Raises `OSError`."""

    async def write_marker(self, marker: Marker) -> None:
        """Write a marker, or replace it; it is durable when this returns. Raises `OSError`."""

    async def has_any(self, names: Sequence[str]) -> bool:
        """Return whether one of these files exists. Raises `OSError`."""


WRITTEN = Counter("tidings_media_written_bytes_total", "Bytes of stored files")

# Bytes of a file that `check` receives, and that a directory writes at a time.
BLOCK = 256 * 1024

Check = Callable[[bytes], None]


@dataclasses.dataclass(frozen=True, slots=True)
class StoredObject:
    """A durable file."""

    # Random name in the store.
    name: str
    # Bytes.
    size: int
    # Hexadecimal.
    sha256: str


class FileStore(MarkedStore, Protocol):
    """Files under random names, each complete or absent.

    Every method raises `StoreUnavailable` while the store cannot be used; files may exist all the same.
    """

    async def write(self, chunks: AsyncIterable[bytes], *, limit: int, check: Check | None = None) -> StoredObject:
        """Store a file with bounded memory; it is durable when this returns.

        Raises `FileTooLarge`, `FileEmpty`, `DiskFull`, `StoreUnavailable`, and the errors of `chunks` and `check`;
        nothing is left then.

        limit: bytes.
        check: receives the first 256 KiB, or all of a smaller file, before anything is written.
        """

    async def open(self, name: str) -> OpenFile:
        """Open a file for reading from its start. Raises `FileGone`, and `OSError` when it cannot be read now."""

    async def delete(self, names: Iterable[str]) -> int:
        """Remove files; returns how many this call removed."""

    def list_old(self, before: float) -> AsyncIterator[list[str]]:
        """Yield pages of names of files, including unfinished ones, last written before a time (Unix seconds)."""

    async def has_room(self) -> bool:
        """Return whether anything may be stored. Raises `OSError`."""

    def location_of(self, name: str) -> str:
        """Return the location of a file as the business sees it: a path, or an `s3:` URL."""

    async def close(self) -> None:
        """Close connections."""


@dataclasses.dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that is open for reading."""

    # Bytes.
    size: int
    # To be closed by the caller.
    reader: MediaReader


async def open_reader(files: FileStore, name: str) -> MediaReader:
    """Return the reader of a file. Raises as `FileStore.open`."""
    return (await files.open(name)).reader
