"""Assignment of shards to processes."""

from __future__ import annotations

import collections

from hypothesis import given
from hypothesis import strategies as st

from coreapp.shard.balancing import Holding, Move, assign, claims, next_move, successors

NODES = ("a", "b", "c", "d", "e")
COUNTS = (1, 2, 4, 8, 16, 32)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[dict[int, str], frozenset[str]]:
    count = draw(st.sampled_from(COUNTS))
    owners = {shard: draw(st.sampled_from((*NODES, ""))) for shard in range(count)}
    return owners, draw(st.frozensets(st.sampled_from(NODES), min_size=1))


def holdings(owners: dict[int, str]) -> list[Holding]:
    return [Holding(shard, owner) for shard, owner in owners.items()]


@given(scenes())
def test_every_shard_has_an_owner_and_counts_differ_by_at_most_one(
    scene: tuple[dict[int, str], frozenset[str]],
) -> None:
    owners, live = scene
    targets = assign(owners, live)
    assert set(targets) == set(owners)
    counts = collections.Counter(targets.values())
    sizes = [counts[node] for node in live]
    assert set(counts) <= live
    assert max(sizes) - min(sizes) <= 1


@given(scenes())
def test_no_more_shards_move_than_necessary(scene: tuple[dict[int, str], frozenset[str]]) -> None:
    owners, live = scene
    targets = assign(owners, live)
    held = collections.Counter(owner for owner in owners.values() if owner in live)
    wanted = collections.Counter(targets.values())
    kept = sum(targets[shard] == owner for shard, owner in owners.items())
    assert kept == sum(min(held[node], wanted[node]) for node in live)


@given(scenes())
def test_moves_converge_and_each_is_made_by_the_owner(
    scene: tuple[dict[int, str], frozenset[str]],
) -> None:
    owners, live = scene
    for node in sorted(live):
        for shard in claims(node, holdings(owners), live):
            owners[shard] = node
    # The shards of dead processes are free by now.
    owners = {shard: owner if owner in live else sorted(live)[0] for shard, owner in owners.items()}
    for _ in range(len(owners) + 1):
        found = next_move(holdings(owners), live)
        if found is None:
            break
        owner, move = found
        assert owners[move.shard] == owner
        owners[move.shard] = move.successor
    assert next_move(holdings(owners), live) is None
    counts = collections.Counter(owners.values())
    assert max(counts[node] for node in live) - min(counts[node] for node in live) <= 1


@given(scenes())
def test_a_free_shard_is_claimed_by_exactly_one_process(scene: tuple[dict[int, str], frozenset[str]]) -> None:
    owners, live = scene
    owners = {shard: owner if owner in live else "" for shard, owner in owners.items()}
    claimed = [shard for node in live for shard in claims(node, holdings(owners), live)]
    assert sorted(claimed) == [shard for shard, owner in owners.items() if not owner]


def test_the_first_shard_does_not_move() -> None:
    owners = dict.fromkeys(range(8), "a")
    assert assign(owners, {"a", "b"}) == {**dict.fromkeys(range(4), "a"), **dict.fromkeys(range(4, 8), "b")}
    assert next_move(holdings(owners), {"a", "b"}) == ("a", Move(7, "b"))


def test_a_standby_gets_no_shard_until_another_process_dies() -> None:
    both = [Holding(0, "a"), Holding(1, "b")]
    assert next_move(both, {"a", "b", "c"}) is None
    assert claims("c", [Holding(0, "a"), Holding(1, "")], {"a", "c"}) == [1]
    assert claims("a", [Holding(0, "a"), Holding(1, "")], {"a", "c"}) == []


def test_a_handed_over_shard_is_reserved_for_its_successor_while_it_lives() -> None:
    given_up = [Holding(0, "a"), Holding(1, "", "b")]
    assert claims("b", given_up, {"a", "b", "c"}) == [1]
    assert claims("c", given_up, {"a", "b", "c"}) == []
    assert claims("c", given_up, {"a", "c"}) == [1], "it is gone"
    assert claims("c", given_up, {"a", "b", "c"}, overdue={1}) == [1], "it does not come"


def test_no_shard_moves_while_another_is_free() -> None:
    assert next_move([Holding(0, "a"), Holding(1, "a"), Holding(2, "a"), Holding(3, "")], {"a", "b"}) is None


def test_a_stopping_process_names_a_live_successor_for_each_shard() -> None:
    held = [Holding(0, "a"), Holding(1, "a"), Holding(2, "b"), Holding(3, "a")]
    found = successors("a", held, {"a", "b", "c"})
    assert set(found) == {0, 1, 3}
    assert collections.Counter([*found.values(), "b"]) == {"b": 2, "c": 2}
    assert successors("a", held, {"a"}) == {0: "", 1: "", 3: ""}
