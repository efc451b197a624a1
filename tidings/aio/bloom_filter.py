"""Bloom filters of digests, which show with certainty that a digest was never added."""

from __future__ import annotations

import struct

# Bits of 16 MiB. With 7,000,000 digests, those of 80 requests per second for 24 hours, a filter takes 4 of 10,000
# others for members.
BITS = 1 << 27
# Six positions of 32 bits; the last 8 bytes of the digest are not needed.
_positions = struct.Struct("<6I8x").unpack


class BloomFilter:
    """Set of digests that contains every digest that was added, and by mistake a few that were not.

    A digest of 32 bytes is uniformly distributed, so its own bits are the positions and nothing is hashed. Memory is
    allocated by the first `add`. There is no limit of digests: the more there are, the more mistakes.
    """

    def __init__(self, bits: int = BITS) -> None:
        """bits: a power of two, at most 2 ** 32."""
        self._size = bits >> 3
        self._mask = bits - 1
        self._bytes = bytearray()

    @property
    def memory(self) -> int:
        """Bytes allocated."""
        return len(self._bytes)

    def add(self, digest: bytes) -> None:
        if not self._bytes:
            self._bytes = bytearray(self._size)
        found, mask = self._bytes, self._mask
        for position in _positions(digest):
            position &= mask
            found[position >> 3] |= 1 << (position & 7)

    def __contains__(self, digest: bytes) -> bool:
        found, mask = self._bytes, self._mask
        if not found:
            return False
        for position in _positions(digest):
            position &= mask
            if not found[position >> 3] >> (position & 7) & 1:
                return False
        return True


class RotatingFilter:
    """Bloom filter that contains each digest for at least `seconds`. Later additions drop it.

    There are two generations. The later one takes what is added; after `seconds` it becomes the earlier one, and the
    earlier one is dropped. While nothing is added, nothing is dropped.
    """

    def __init__(self, seconds: float, now: float, *, bits: int = BITS) -> None:
        """now: Unix seconds."""
        self._seconds = seconds
        self._bits = bits
        self._later = BloomFilter(bits)
        self._earlier = BloomFilter(bits)
        self._rotates_at = now + seconds

    @property
    def memory(self) -> int:
        """Bytes allocated, of both generations."""
        return self._later.memory + self._earlier.memory

    def add(self, digest: bytes, now: float) -> None:
        """Add a digest at `now`, in Unix seconds."""
        if now >= self._rotates_at:
            self._earlier, self._later = self._later, BloomFilter(self._bits)
            self._rotates_at = now + self._seconds
        self._later.add(digest)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._later or digest in self._earlier
