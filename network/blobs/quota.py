"""Bytes that blobs may take together: the stored ones, and those that are being uploaded."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Iterator

from prometheus_client import Counter, Gauge

from network.errors import Full, QuotaUsed
from tidings.aio.lru import LRU

USED = Gauge("tidings_network_blobs_bytes", "Bytes of the blobs that are stored")
USED_UP = Counter("tidings_network_blob_quota_used_total", "Blobs refused because one number has left too many bytes")

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


class Quota:
    """Quota of all blobs, and of the blobs of each owner; an owner never has more than is still free.

    stored: bytes of all rows at the last count, and of uploads since.
    """

    def __init__(self, limit: int, owner_limit: int) -> None:
        """limit: bytes of all owners together.
        owner_limit: bytes of one owner.
        """
        self._limit = limit
        self._owner_limit = owner_limit
        self._coming: collections.Counter[str] = collections.Counter()
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
        left = min(self._owner_limit * weight, self._limit) - share.counted
        return (share.added + self._coming[owner] + size) * UNCOUNTED_PART > left

    @contextlib.contextmanager
    def reservation(self, owner: str, owned: int, size: int = 0, *, weight: int = 1) -> Iterator[Reservation]:
        """Reserve room for an upload until the end of the block. Raises `Full` and `QuotaUsed` when there is none.

        owned: bytes that the owner has stored.
        size: bytes of the upload, 0 when that is not known.
        weight: factor by which the owner's quota is multiplied.
        """
        reservation = Reservation(self, owner, owned, weight=weight)
        try:
            reservation.grow(size)
            yield reservation
        finally:
            self._coming[owner] -= reservation.size
            if not self._coming[owner]:
                del self._coming[owner]

    def take(self, owner: str, owned: int, size: int, *, weight: int) -> None:
        """Reserve `size` more bytes for this owner. Raises `Full` and `QuotaUsed`."""
        free = self._limit - self.stored - self._coming.total() - size
        if free < 0:
            raise Full("the directory of blobs is full; the operator of the network has to make room")
        if owned + self._coming[owner] + size > min(self._owner_limit * weight, self._limit) or (
            owned + self._coming[owner] > free and weight == 1
        ):
            USED_UP.inc()
            raise QuotaUsed("this number has left as much as one may; there is room when something of it has expired")
        self._coming[owner] += size


class Reservation:
    """Bytes of an upload."""

    def __init__(self, quota: Quota, owner: str, owned: int, *, weight: int) -> None:
        self._quota = quota
        self._owner = owner
        self._owned = owned
        self._weight = weight
        self.size = 0

    def grow(self, size: int) -> None:
        """Grow the reservation to at least `size` bytes. Raises `Full` and `QuotaUsed`."""
        if size > self.size:
            self._quota.take(self._owner, self._owned, size - self.size, weight=self._weight)
            self.size = size
