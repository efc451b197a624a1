"""Bytes that blobs may take together: the stored ones, and those that are still arriving."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator

from prometheus_client import Counter, Gauge

from network.errors import Full, QuotaUsed

USED = Gauge("tidings_network_blobs_bytes", "Bytes of the blobs that are stored")
USED_UP = Counter("tidings_network_blob_quota_used_total", "Blobs refused because one number has left too many bytes")


class Quota:
    """Quota of all blobs, and of those of each owner, who never has more than is still free.

    stored: bytes of all rows at the last count, and of what arrived since.
    """

    def __init__(self, limit: int, owner_limit: int) -> None:
        """limit: bytes of all; owner_limit: bytes of one owner."""
        self._limit = limit
        self._owner_limit = owner_limit
        self._coming: collections.Counter[str] = collections.Counter()
        self.stored = 0

    def count(self, stored: int) -> None:
        """The rows were counted. What was committed while that went on is counted wrongly until the next time."""
        self.stored = stored
        USED.set(stored)

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
