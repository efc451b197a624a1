"""Which process is to own which shard: evenly, with as few moves as possible, and one move at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """A shard that its owner gives up for a successor."""

    shard: int
    successor: str


@dataclasses.dataclass(frozen=True, slots=True)
class Holding:
    """A shard as a process sees it. owner: empty while nobody alive owns it; successor: for whom it was given up, empty
    when nobody waits for it any more."""

    shard: int
    owner: str
    successor: str = ""


def spread(owners: Mapping[int, str], live: Collection[str]) -> Mapping[int, str]:
    """Who is to own each shard. owners: who does now, empty for nobody; live: the processes that there are.

    Numbers of shards differ by one at most. Whoever has more keeps more; of those that a process gives up none is
    before one that it keeps, so that the first shard stays where it is. All processes find the same.
    """
    held: dict[str, list[int]] = {node: [] for node in live}
    homeless = []
    for shard in sorted(owners):
        if owners[shard] in held:
            held[owners[shard]].append(shard)
        else:
            homeless.append(shard)
    if not held:
        return {}
    least, more = divmod(len(owners), len(held))
    order = sorted(held, key=lambda node: (-len(held[node]), node))
    quotas = {node: least + (place < more) for place, node in enumerate(order)}
    for node, quota in quotas.items():
        homeless += held[node][quota:]
        del held[node][quota:]
    for shard in sorted(homeless):
        # Round by round, so that the first ones that are free do not all go to one.
        node = min((n for n in order if len(held[n]) < quotas[n]), key=lambda n: (len(held[n]), order.index(n)))
        held[node].append(shard)
    return {shard: node for node, shards in held.items() for shard in shards}


def claims(me: str, holdings: Sequence[Holding], live: Collection[str], *, overdue: Collection[int] = ()) -> list[int]:
    """The shards that this process is to claim now: free ones that fall to it, or that were given up for it.

    overdue: those that have been free for so long that whoever they fall to does not come.
    """
    targets = spread({holding.shard: holding.owner for holding in holdings}, live)
    found = []
    for holding in holdings:
        if holding.owner:
            continue
        heir = holding.successor if holding.successor in live else targets.get(holding.shard, "")
        if heir == me or holding.shard in overdue:
            found.append(holding.shard)
    return found


def next_move(holdings: Sequence[Holding], live: Collection[str]) -> tuple[str, Move] | None:
    """The move to be made next, with the owner who makes it; none while any shard is free or on its way."""
    owners = {holding.shard: holding.owner for holding in holdings}
    if any(owner not in live for owner in owners.values()):
        return None
    targets = spread(owners, live)
    # From the end, so that the first shard is the last to move.
    for shard in sorted(owners, reverse=True):
        if targets[shard] != owners[shard]:
            return owners[shard], Move(shard, targets[shard])
    return None


def heirs(me: str, holdings: Sequence[Holding], live: Collection[str]) -> Mapping[int, str]:
    """For whom this process gives each of its shards up when it leaves; nobody where it is the last one."""
    others = [node for node in live if node != me]
    owners = {holding.shard: holding.owner if holding.owner != me else "" for holding in holdings}
    targets = spread(owners, others)
    return {holding.shard: targets.get(holding.shard, "") for holding in holdings if holding.owner == me}
