"""Shard map of several Coreapps."""

from __future__ import annotations

from collections.abc import Sequence

from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.business.nodes import NodeRecord
from tidings.storage.business.shards import Owner

NOBODY = "127.0.0.1:1"  # address at which no process listens


class Cluster:
    """Shards with one owner each, called `node0`, `node1` …"""

    def __init__(self, *addresses: str, members: Sequence[NodeRecord] = ()) -> None:
        self._addresses = addresses
        self._members = members

    async def owners(self) -> Sequence[Owner]:
        return [Owner(shard, f"node{shard}", address, 1) for shard, address in enumerate(self._addresses)]

    async def members(self) -> Sequence[NodeRecord]:
        return self._members


async def two(coreapp: FakeCoreapp) -> tuple[FakeCoreapp, Cluster]:
    """Return a second Coreapp, and the map of both."""
    other = await FakeCoreapp().start()
    return other, Cluster(coreapp.address, other.address)
