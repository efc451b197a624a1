"""Shard of a recipient among those of one number."""

from __future__ import annotations

from tidings.storage.business.shards import Lease
from tidings.wire import addresses


def shard_of(lease: Lease, recipient: str) -> int:
    """Return the shard that a recipient belongs to, of the number that the lease's shard belongs to."""
    return lease.first_shard + addresses.shard_of(recipient, lease.shards)
