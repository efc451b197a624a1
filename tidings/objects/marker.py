"""Marker of a file store: a small file that names the database the store belongs to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

import msgspec

# Its dot keeps it distinct from names of stored files.
NAME = ".tidings-store"


class Marker(msgspec.Struct, frozen=True):
    """Marker of a store. A file that cannot be read as a marker gives empty strings."""

    # `media` or `blobs`.
    store: str = ""
    # Random id of the database that records the store.
    database: str = ""
    # Random id of the store in that database.
    id: str = ""


def encode(marker: Marker) -> bytes:
    """Return the content of the marker file."""
    return json.dumps(msgspec.to_builtins(marker)).encode() + b"\n"


def decode(content: bytes) -> Marker:
    """Return the marker in a file; an empty one, which matches no record, for any other content."""
    try:
        return msgspec.json.decode(content, type=Marker)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Marker()


class MarkedStore(Protocol):
    """A file store that can hold a marker."""

    # Marker that the database records; `None` until it was compared.
    expected: Marker | None

    @property
    def is_local(self) -> bool:
        """Return whether the store is in a file system."""
        ...

    @property
    def location(self) -> str:
        """Location such as a path, for error texts."""
        ...

    def prepare(self) -> None:
        """Make the store if that is our task. Raises `OSError`."""
        ...

    async def read_marker(self) -> Marker | None:
        """Return the marker; `None` when there is none. Raises `OSError`."""
        ...

    async def write_marker(self, marker: Marker) -> None:
        """Write a marker, or replace it; it is durable when this returns. Raises `OSError`."""
        ...

    async def has_any(self, names: Sequence[str]) -> bool:
        """Return whether one of these files exists. Raises `OSError`."""
        ...
