"""Files that the Cloud API has refused for good lately, which are not uploaded again for each message."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU

REMEMBERED = 10_000  # refusals, of at most 1.5 kB each; the least recently used is forgotten
LIFE_SECONDS = 300.0  # seconds after which a refused file is tried again


@dataclasses.dataclass(frozen=True, slots=True)
class FileRefusal:
    """Reason why the Cloud API refuses a file."""

    code: int  # error code of v1
    details: str


class RefusedFiles:
    """Refusals of one number, for all of its shards in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: LRU[tuple[str, ...], tuple[float, FileRefusal]] = LRU(REMEMBERED)

    def add(self, names: Sequence[str], refusal: FileRefusal) -> None:
        """Remember a refusal.

        names: what identifies the file, or the files of one message
        """
        self._found.put(tuple(names), (self._clock.monotonic() + LIFE_SECONDS, refusal))

    def find(self, names: Sequence[str]) -> FileRefusal | None:
        """Return the refusal that was remembered with these names; None for none within its life."""
        found = self._found.get(tuple(names))
        return found[1] if found is not None and self._clock.monotonic() < found[0] else None
