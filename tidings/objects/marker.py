"""Marker of a file store: a small file that names the database the store belongs to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

import msgspec

# The name has a dot, so it is never the name of a stored file.
NAME = ".tidings-store"


class Marker(msgspec.Struct, frozen=True):
    """store: `media` or `blobs`; database: random id of the database that records the store; id: random id of this
    store in that database. Empty strings: a file that cannot be read as a marker."""

    store: str = ""
    database: str = ""
    id: str = ""


def encode(marker: Marker) -> bytes:
    """The content of the marker file."""
    return json.dumps(msgspec.to_builtins(marker)).encode() + b"\n"


def decode(content: bytes) -> Marker:
    """The marker in a file; an empty one, which matches no record, for anything else."""
    try:
        return msgspec.json.decode(content, type=Marker)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Marker()


class MarkedStore(Protocol):
    """A file store that can hold a marker.

    is_local: a file system; location: for error texts, such as a path; expected: the marker that the
    database records, `None` until it was compared.
    """

    expected: Marker | None

    @property
    def is_local(self) -> bool: ...

    @property
    def location(self) -> str: ...

    def prepare(self) -> None:
        """Make the store where that is for us to do. Raises `OSError`."""
        ...

    async def read_marker(self) -> Marker | None:
        """The marker, `None` when there is none. Raises `OSError`."""
        ...

    async def write_marker(self, marker: Marker) -> None:
        """Put a marker, in the place of any other; it is durable when this returns. Raises `OSError`."""
        ...

    async def has_any(self, names: Sequence[str]) -> bool:
        """Whether one of these files is there. Raises `OSError`."""
        ...
