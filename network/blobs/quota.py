"""Bytes that blobs may take together: the stored ones, and those that are still arriving."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Iterator

from prometheus_client import Counter, Gauge

from network.errors import Full, QuotaUsed
from tidings.runtime.lru import LRU

USED = Gauge("tidings_network_blobs_bytes", "Bytes of the blobs that are stored")
USED_UP = Counter("tidings_network_blob_quota_used_total", "Blobs refused because one number has left too many bytes")

# Owners whose bytes are known; those of another are counted when it comes again.
REMEMBERED = 20_000
# An owner's bytes are counted again once this process has taken this part of what was left to it: up to so many nodes,
# none of which knows what the others take meanwhile, keep to the quota.
UNCOUNTED_PART = 16


@dataclasses.dataclass(slots=True)
class Share:
    """What one owner has stored. counted: bytes of its rows, `None` until they are counted; added: bytes that were
    committed here since that count began, some of which it may have seen."""

    counted: int | None = None
    added: int = 0

    @property
    def size(self) -> int:
        """Bytes, never too few of those that this process has stored."""
        return (self.counted or 0) + self.added


class Quota:
    """Quota of all blobs, and of those of each owner, who never has more than is still free.

    stored: bytes of all rows at the last count, and of what arrived since.
    """

    def __init__(self, limit: int, owner_limit: int) -> None:
        """limit: bytes of all; owner_limit: bytes of one owner."""
        self._limit = limit
        self._owner_limit = owner_limit
        self._coming: collections.Counter[str] = collections.Counter()
        self._shares: LRU[str, Share] = LRU(REMEMBERED)
        self.stored = 0

    def count(self, stored: int) -> None:
        """The rows were counted. What was committed while that went on is counted wrongly until the next time.

        Those of owners, some of which may be gone, are to be counted again.
        """
        self.stored = stored
        USED.set(stored)
        self._shares.clear()

    def add(self, owner: str, size: int) -> None:
        """So many bytes of this owner's were committed."""
        self.stored += size
        USED.set(self.stored)
        share = self._shares.get(owner)
        if share is not None:
            share.added += size

    def share(self, owner: str, size: int = 0, *, weight: int = 1) -> Share:
        """What the owner has stored; the caller counts it, now, when it is not counted. size, weight: as in
        `reservation`."""
        share = self._shares.get(owner)
        if share is None or self._is_outdated(share, owner, size, weight):
            share = Share()
            self._shares.put(owner, share)
        return share

    def _is_outdated(self, share: Share, owner: str, size: int, weight: int) -> bool:
        if share.counted is None:
            return False
        left = min(self._owner_limit * weight, self._limit) - share.counted
        return (share.added + self._coming[owner] + size) * UNCOUNTED_PART > left

    @contextlib.contextmanager
    def reservation(self, owner: str, owned: int, size: int = 0, *, weight: int = 1) -> Iterator[Reservation]:
        """Room for what comes, given back at the end of the block. Raises `Full` and `QuotaUsed` when there is none.

        owned: bytes that the owner has stored; size: bytes that will come, 0 when that is not known; weight: how many
        times the quota of others the owner has.
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
        """So many bytes more of this owner's are coming. Raises `Full` and `QuotaUsed`."""
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
    """Bytes that are arriving."""

    def __init__(self, quota: Quota, owner: str, owned: int, *, weight: int) -> None:
        self._quota = quota
        self._owner = owner
        self._owned = owned
        self._weight = weight
        self.size = 0

    def grow(self, size: int) -> None:
        """There will be so many bytes at least. Raises `Full` and `QuotaUsed`."""
        if size > self.size:
            self._quota.take(self._owner, self._owned, size - self.size, weight=self._weight)
            self.size = size
