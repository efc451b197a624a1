"""Shard numbers of each number of the business: a block of 32."""

from __future__ import annotations

# Largest number of shards of one number: the number of hash slots of recipients.
SIZE = 32


def first_shard(block: int) -> int:
    """Return the first shard of a block."""
    return block * SIZE


def block_of(shard: int) -> int:
    """Return the block that a shard belongs to."""
    return shard // SIZE
