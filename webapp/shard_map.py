"""Which Coreapps there are, and which of them owns which shard."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from tidings.storage.business import nodes, shards
from tidings.storage.business.nodes import Member
from tidings.storage.business.shards import Owner
from tidings.storage.database import Database

# Seconds that a Coreapp is named after its last sign of life, if it did not leave.
NAMED = 3600.0


class ShardMap(Protocol):
    """The owners of the shards, and who else is there."""

    async def owners(self) -> Sequence[Owner]:
        """Every shard; one that nobody owns has an empty address."""
        ...

    async def members(self) -> Sequence[Member]:
        """The processes, as far as they have a name of their own."""
        ...


class DatabaseShardMap:
    """The map that the Coreapps keep in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def owners(self) -> Sequence[Owner]:
        async with self._database.reading() as connection:
            return await shards.list_owners(connection)

    async def members(self) -> Sequence[Member]:
        async with self._database.reading() as connection:
            return await nodes.list_members(connection)


class FixedShardMap:
    """One Coreapp at a known address, with the only shard."""

    def __init__(self, host: str, port: int) -> None:
        self._owner = Owner(shard=0, node="", address=f"{host}:{port}", epoch=0)

    async def owners(self) -> Sequence[Owner]:
        return [self._owner]

    async def members(self) -> Sequence[Member]:
        return []


@dataclasses.dataclass(frozen=True, slots=True)
class Coreapp:
    """A process that owns shards, stands by, or is lost. address: empty for the shards that nobody owns.

    silence: seconds since the last sign of life of one that is lost; not compared.
    """

    node: str
    address: str
    shards: tuple[int, ...] = ()
    silence: float = dataclasses.field(default=0.0, compare=False)
    is_lost: bool = False

    @property
    def role(self) -> str:
        """As the original calls it: the owner of the first shard does what is done once for all."""
        if 0 in self.shards:
            return "primary_master"
        return "secondary_master" if self.shards else "coreapp"

    @property
    def name(self) -> str:
        return self.node or self.address or "none"


def list_coreapps(owners: Sequence[Owner], members: Sequence[Member]) -> Sequence[Coreapp]:
    """One entry for each process, by address.

    Shards that nobody owns have one, too, unless there is one process only. One that is lost is named for an hour, but
    not when another is at its address: then it was started again.
    """
    found: dict[str, Coreapp] = {}
    for owner in owners:
        before = found.get(owner.address, Coreapp(owner.node, owner.address))
        found[owner.address] = dataclasses.replace(before, shards=(*before.shards, owner.shard))
    for member in sorted(members, key=lambda member: member.silence):
        address, is_lost = member.node.address, not member.is_live
        present = found.get(address)
        if present is None and (not is_lost or member.silence < NAMED):
            found[address] = Coreapp(member.node.name, address, (), member.silence, is_lost)
        elif present is not None and present.node == member.node.name and is_lost:
            found[address] = dataclasses.replace(present, silence=member.silence, is_lost=True)
    if len(found) == 2:
        found.pop("", None)
    return [found[address] for address in sorted(found)]
