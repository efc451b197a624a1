"""Bytes that blobs may take together: the stored ones, and those that are being uploaded."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

from prometheus_client import Counter, Gauge

from network.errors import Full, QuotaUsed
from tidings.aio.lru import LRU
from tidings.aio.quota import Holdings, Quota

USED = Gauge("tidings_network_blobs_bytes", "Bytes of stored blobs")
USED_UP = Counter(
    "tidings_network_blob_quota_used_total", "Blobs refused because their number has stored too many bytes"
)

# Owners whose bytes are cached; those of others are counted at their next upload.
REMEMBERED = 20_000
# An owner's bytes are counted again once this process has used this part, a sixteenth, of what was left to it. So up to
# 16 nodes, which do not know each other's uploads, keep to the quota.
UNCOUNTED_PART = 16


@dataclasses.dataclass(slots=True)
class OwnerUsage:
    """Stored bytes of one owner."""

    # Bytes of its rows; `None` until they are counted.
    counted: int | None = None
    # Bytes that this process has committed since that count started, some of which the count may include.
    added: int = 0

    @property
    def size(self) -> int:
        """Return the bytes, at least as many as this process has stored."""
        return (self.counted or 0) + self.added


class BlobQuota:
    """Quota of all blobs, and of the blobs of each owner; an owner never has more than is still free.

    stored: bytes of all rows at the last count, and of uploads since.
    """

    def __init__(self, limit: int, owner_limit: int) -> None:
        """limit: bytes of all owners together.
        owner_limit: bytes of one owner.
        """
        self._limit = limit
        self._owner_limit = owner_limit
        self._coming: Holdings[str] = Holdings()
        self._shares: LRU[str, OwnerUsage] = LRU(REMEMBERED)
        self.stored = 0

    def count(self, stored: int) -> None:
        """Set the bytes of all rows after a count. Commits during the count may be counted wrongly until the next one.

        The counts of owners are dropped, since some of their rows may have been deleted.
        """
        self.stored = stored
        USED.set(stored)
        self._shares.clear()

    def add(self, owner: str, size: int) -> None:
        """Add `size` committed bytes of this owner."""
        self.stored += size
        USED.set(self.stored)
        share = self._shares.get(owner)
        if share is not None:
            share.added += size

    def share(self, owner: str, size: int = 0, *, weight: int = 1) -> OwnerUsage:
        """Return the stored bytes of an owner; when they are not counted, the caller must count them now.

        size, weight: as for `reservation`.
        """
        share = self._shares.get(owner)
        if share is None or self._is_outdated(share, owner, size, weight):
            share = OwnerUsage()
            self._shares.put(owner, share)
        return share

    def _is_outdated(self, share: OwnerUsage, owner: str, size: int, weight: int) -> bool:
        if share.counted is None:
            return False
        left = self._quota(weight).each - share.counted
        return (share.added + self._coming.of(owner) + size) * UNCOUNTED_PART > left

    @contextlib.contextmanager
    def reservation(self, owner: str, owned: int, size: int = 0, *, weight: int = 1) -> Iterator[Callable[[int], None]]:
        """Reserve room for an upload until the end of the block. Raises `Full` and `QuotaUsed` when there is none.

        The block gets a function that grows the reservation to a number of bytes, and raises the same errors.

        owned: bytes that the owner has stored.
        size: bytes of the upload, 0 when that is not known.
        weight: factor by which the owner's quota is multiplied.
        """
        reserved = 0

        def grow(size: int) -> None:
            nonlocal reserved
            if size > reserved:
                self._take(owner, owned, size - reserved, weight)
                reserved = size

        try:
            grow(size)
            yield grow
        finally:
            self._coming.remove(owner, reserved)

    def _quota(self, weight: int) -> Quota:
        return Quota(self._limit, min(self._owner_limit * weight, self._limit), is_fair=weight == 1)

    def _take(self, owner: str, owned: int, size: int, weight: int) -> None:
        total = self.stored + self._coming.total
        if total + size > self._limit:
            raise Full("the blob store is full; the operator of the network must free space")
        if not self._quota(weight).has_room(total, owned + self._coming.of(owner), size):
            USED_UP.inc()
            raise QuotaUsed("this number has reached its limit of stored bytes; space is free when a blob expires")
        self._coming.add(owner, size)
