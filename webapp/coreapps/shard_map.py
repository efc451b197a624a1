"""Coreapps of the installation, and the owner of each shard."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from tidings.storage.business import nodes, shard_blocks, shards
from tidings.storage.business.nodes import NodeRecord
from tidings.storage.business.shards import Owner
from tidings.storage.database import Database

# Seconds after its last heartbeat for which a lost Coreapp is listed.
NAMED = 3600.0


class ShardMap(Protocol):
    """Owners of the shards, and all live and lost Coreapps."""

    async def owners(self) -> Sequence[Owner]:
        """Return the owner of every shard. A shard without an owner has an empty address."""
        ...

    async def members(self) -> Sequence[NodeRecord]:
        """Return the Coreapps that have a name."""
        ...


class DatabaseShardMap:
    """Shard map that the Coreapps maintain in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def owners(self) -> Sequence[Owner]:
        async with self._database.reading() as connection:
            return await shards.list_owners(connection)

    async def members(self) -> Sequence[NodeRecord]:
        async with self._database.reading() as connection:
            return await nodes.list_members(connection)


class FixedShardMap:
    """Shard map of one Coreapp at a fixed address, which owns all shards."""

    def __init__(self, host: str, port: int) -> None:
        self._owner = Owner(shard=0, node="", address=f"{host}:{port}", epoch=0)

    async def owners(self) -> Sequence[Owner]:
        return [self._owner]

    async def members(self) -> Sequence[NodeRecord]:
        return []


@dataclasses.dataclass(frozen=True, slots=True)
class Coreapp:
    """Coreapp that owns shards, stands by, or is lost."""

    node: str
    address: str  # empty for the entry of shards without an owner
    shards: tuple[int, ...] = ()
    # Seconds since the last heartbeat of a lost Coreapp. Not compared.
    heartbeat_age: float = dataclasses.field(default=0.0, compare=False)
    is_lost: bool = False

    @property
    def role(self) -> str:
        """Role in the terms of the On-Premises API.

        The primary master does what is done once per account: it is the owner of a number's first shard. A lost Coreapp
        has no role, although it is the recorded owner of its shards until another Coreapp claims them.
        """
        if self.is_lost:
            return "coreapp"
        if any(shard_blocks.first_shard(shard_blocks.block_of(shard)) == shard for shard in self.shards):
            return "primary_master"
        return "secondary_master" if self.shards else "coreapp"

    @property
    def name(self) -> str:
        return self.node or self.address or "none"


def list_coreapps(owners: Sequence[Owner], members: Sequence[NodeRecord]) -> Sequence[Coreapp]:
    """Return one entry per Coreapp, sorted by address.

    Shards without an owner have an entry as well, unless there is only one Coreapp. A lost Coreapp is listed for
    an hour, except when another Coreapp has its address, which means that it was restarted.
    """
    found: dict[str, Coreapp] = {}
    for owner in owners:
        before = found.get(owner.address, Coreapp(owner.node, owner.address))
        found[owner.address] = dataclasses.replace(before, shards=(*before.shards, owner.shard))
    for member in sorted(members, key=lambda member: member.heartbeat_age):
        address, is_lost = member.node.address, not member.is_live
        present = found.get(address)
        if present is None and (not is_lost or member.heartbeat_age < NAMED):
            found[address] = Coreapp(member.node.name, address, (), member.heartbeat_age, is_lost)
        elif present is not None and present.node == member.node.name and is_lost:
            found[address] = dataclasses.replace(present, heartbeat_age=member.heartbeat_age, is_lost=True)
    if len(found) == 2:
        found.pop("", None)
    return [found[address] for address in sorted(found)]
