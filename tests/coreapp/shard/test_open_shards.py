"""Shards of a process, while terms of them end and start."""

from __future__ import annotations

import types
from typing import Any

from coreapp.shard.open_shards import OpenShards
from tidings.storage.business.shards import Lease
from tidings.wire.addresses import shard_of

NUMBERS = [f"1555011{n:04}" for n in range(64)]


def shard(number: int, *, epoch: int = 1, shards: int = 4) -> Any:
    return types.SimpleNamespace(context=types.SimpleNamespace(lease=Lease(number, "node", epoch, shards)))


def test_the_end_of_an_earlier_term_keeps_the_shard_of_a_later_one_open() -> None:
    open_shards, later = OpenShards(), shard(1, epoch=3)
    open_shards.put(later)
    open_shards.remove(Lease(1, "node", 1, 4))
    assert open_shards.get(1) is later
    open_shards.remove(Lease(1, "node", 3, 4))
    assert open_shards.get(1) is None


def test_peers_are_looked_up_only_in_shards_of_the_latest_layout() -> None:
    open_shards = OpenShards()
    open_shards.put(shard(1, shards=2))
    open_shards.put(shard(0, shards=4))
    for number in NUMBERS:
        found = open_shards.of(number)
        assert (found is not None) == (shard_of(number, 4) == 0)
