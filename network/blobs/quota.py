"""Bytes that blobs may take together: the stored ones, and those that are still arriving."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from prometheus_client import Gauge

from network.errors import Full

USED = Gauge("tidings_network_blobs_bytes", "Bytes of the blobs that are stored")


class Quota:
    """Quota of all blobs. stored: bytes of all rows at the last count, and of what arrived since."""

    def __init__(self, limit: int) -> None:
        """limit: bytes."""
        self._limit = limit
        self._coming = 0
        self.stored = 0

    def count(self, stored: int) -> None:
        """The rows were counted. What was committed while that went on is counted wrongly until the next time."""
        self.stored = stored
        USED.set(stored)

    @contextlib.contextmanager
    def reservation(self, size: int = 0) -> Iterator[Reservation]:
        """Room for what comes, given back at the end of the block. Raises `Full` when there is none for `size` bytes.

        size: bytes that will come; 0 when that is not known.
        """
        reservation = Reservation(self)
        try:
            reservation.grow(size)
            yield reservation
        finally:
            self._coming -= reservation.size

    def take(self, size: int) -> None:
        if self.stored + self._coming + size > self._limit:
            raise Full("the directory of blobs is full; the operator of the network has to make room")
        self._coming += size


class Reservation:
    """Bytes that are arriving."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self.size = 0

    def grow(self, size: int) -> None:
        """There will be so many bytes at least. Raises `Full`."""
        if size > self.size:
            self._quota.take(size - self.size)
            self.size = size
