"""Balancer of shards over processes: evenly, with as few moves as possible, and one move at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """Handover of a shard from its owner to a successor."""

    shard: int
    successor: str


@dataclasses.dataclass(frozen=True, slots=True)
class Holding:
    """State of a shard as a process sees it."""

    shard: int
    owner: str  # name of the owner; empty while no live process owns the shard
    successor: str = ""  # name of the process for which it was given up; empty if none waits for it


def assign(owners: Mapping[int, str], live: Collection[str]) -> Mapping[int, str]:
    """Return the process that should own each shard. All processes compute the same result.

    The numbers of shards per process differ by at most one. Processes with more shards keep more. A process gives up
    its highest shards, so that the first shard stays where it is.

    owners: present owner of each shard, empty for none
    live: names of the live processes
    """
    held: dict[str, list[int]] = {node: [] for node in live}
    unassigned = []
    for shard in sorted(owners):
        if owners[shard] in held:
            held[owners[shard]].append(shard)
        else:
            unassigned.append(shard)
    if not held:
        return {}
    least, more = divmod(len(owners), len(held))
    order = sorted(held, key=lambda node: (-len(held[node]), node))
    quotas = {node: least + (place < more) for place, node in enumerate(order)}
    for node, quota in quotas.items():
        unassigned += held[node][quota:]
        del held[node][quota:]
    for shard in sorted(unassigned):
        # One round after another, so that the first free shards do not all go to one process.
        node = min((n for n in order if len(held[n]) < quotas[n]), key=lambda n: (len(held[n]), order.index(n)))
        held[node].append(shard)
    return {shard: node for node, shards in held.items() for shard in shards}


def claims(me: str, holdings: Sequence[Holding], live: Collection[str], *, overdue: Collection[int] = ()) -> list[int]:
    """Return the shards that this process should claim now: free ones that are assigned to it, or that were given up
    for it.

    overdue: shards that have been free for so long that their assigned process is not expected to claim them
    """
    targets = assign({holding.shard: holding.owner for holding in holdings}, live)
    found = []
    for holding in holdings:
        if holding.owner:
            continue
        assigned = holding.successor if holding.successor in live else targets.get(holding.shard, "")
        if assigned == me or holding.shard in overdue:
            found.append(holding.shard)
    return found


def next_move(holdings: Sequence[Holding], live: Collection[str]) -> tuple[str, Move] | None:
    """Return the next move with the owner who makes it; None while a shard is free or being handed over, or if none is
    needed.
    """
    owners = {holding.shard: holding.owner for holding in holdings}
    if any(owner not in live for owner in owners.values()):
        return None
    targets = assign(owners, live)
    # Starts at the highest, so that the first shard is the last to move.
    for shard in sorted(owners, reverse=True):
        if targets[shard] != owners[shard]:
            return owners[shard], Move(shard, targets[shard])
    return None


def successors(me: str, holdings: Sequence[Holding], live: Collection[str]) -> Mapping[int, str]:
    """Return the successors of this process's shards for its stop; empty names if it is the last process."""
    others = [node for node in live if node != me]
    owners = {holding.shard: holding.owner if holding.owner != me else "" for holding in holdings}
    targets = assign(owners, others)
    return {holding.shard: targets.get(holding.shard, "") for holding in holdings if holding.owner == me}
