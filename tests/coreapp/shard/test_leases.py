"""Two Coreapps and one shard: exactly one of them writes at any time."""

from __future__ import annotations

import asyncio

import pytest

from coreapp.shard.term import Term
from tests.coreapp.conftest import World
from tests.coreapp.signals import soon
from tidings.storage.business import callbacks, messages, nodes, shards
from tidings.storage.database import Connection
from tidings.wire import core

NUMBER = "15550110001"


async def test_a_lost_lease_fences_the_previous_owner(world: World) -> None:
    world.add_phones(NUMBER)
    # The first sends heartbeats too rarely, as if it were paused in between, including its clock.
    first = await world.start(node="first", heartbeat_seconds=2.0, lease_seconds=3600.0)
    await world.connected(first)
    await first.client.check(NUMBER)
    before = await first.client.send(NUMBER, "mine")
    assert isinstance(before, core.Accepted)
    second = await world.start(node="second", lease_seconds=0.8, heartbeat_seconds=0.05)

    late = await first.client.send(NUMBER, "too late")
    assert isinstance(late, core.Refused)
    assert late.code == 1018
    # It stands by again, and takes over later.
    await soon(lambda: len(first.node.shards) == 0)
    health = await first.client.call(core.GetHealth)
    assert health.shards == []
    await second.stopped()
    await world.owner(first)
    async with world.database.reading() as connection:
        found = await messages.count_by_status(connection)
        (owner,) = await shards.list_owners(connection)
    assert sum(found.values()) == 1, "the late message is not there"
    assert (owner.node, owner.epoch) == ("first", 3)


async def test_a_clean_stop_lets_the_next_owner_claim_at_once(world: World) -> None:
    world.add_phones(NUMBER)
    first = await world.start(node="first", lease_seconds=3600.0)
    second = await world.start(node="second", lease_seconds=3600.0, heartbeat_seconds=0.05, owned=False)
    health = await second.client.call(core.GetHealth)
    assert health.shards == []
    refused = await second.client.send(NUMBER)
    assert isinstance(refused, core.Refused)
    assert refused.code == 1018
    await first.stopped()
    await world.owner(second)
    await world.connected(second)
    await second.client.check(NUMBER)
    assert isinstance(await second.client.send(NUMBER), core.Accepted)


async def test_exactly_one_of_two_concurrent_claims_wins(world: World) -> None:
    async with world.database.transaction() as connection:
        await shards.create_shards(connection, 1)

    async def claim(name: str) -> shards.Lease | None:
        async with world.database.transaction() as connection:
            return await shards.claim(connection, 0, owner=name, address="a:1", heartbeat_timeout=30)

    leases = await asyncio.gather(*(claim(f"node {n}") for n in range(8)))
    won = [lease for lease in leases if lease is not None]
    assert len(won) == 1
    assert won[0].epoch == 1


async def test_a_takeover_continues_the_callbacks_of_the_previous_owner(world: World) -> None:
    """Order and event ids stay. Nothing that was accepted is posted again."""
    world.add_phones(NUMBER)
    world.sink.respond = lambda post: 500
    first = await world.start(node="first")
    await world.connected(first)
    await first.client.check(NUMBER)
    accepted = [(await first.client.send(NUMBER, str(n))).id for n in range(5)]
    await world.sink.signals.until(lambda: len({post.event_id for post in world.sink.posts}) == 5)
    events = {post.label[0]: post.event_id for post in world.sink.posts}
    await first.stopped()
    async with world.database.reading() as connection:
        highest = await callbacks.highest_seq(connection)

    world.sink.posts.clear()
    world.sink.respond = lambda post: 200
    second = await world.start(node="second")
    await world.connected(second)
    newest = (await second.client.send(NUMBER, "new")).id
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 6)
    taken = {post.label[0]: post.event_id for post in world.sink.taken()}
    assert {key: taken[key] for key in accepted} == events
    assert int(taken[newest].removeprefix("evt_"), 16) > highest


async def test_a_shard_is_not_claimed_again_before_its_earlier_term_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, released, closed = Term._release, asyncio.Event(), asyncio.Event()

    async def slow(term: Term) -> None:
        await release(term)
        released.set()
        await closed.wait()

    monkeypatch.setattr(Term, "_release", slow)
    running = await world.start()
    term, _ = running.node._terms[0]
    term.give_up()
    await released.wait()
    await running.node.run_once()
    async with world.database.reading() as connection:
        (free,) = await shards.list_owners(connection)
    assert (free.node, free.epoch) == ("", 1)
    closed.set()
    await soon(lambda: len(running.node.shards) == 1)
    assert running.shard.context.lease.epoch == 2


async def test_a_stopping_process_gets_no_shard_while_it_releases_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await world.start(node="first")
    release = shards.release
    there: list[list[str]] = []

    async def noting(connection: Connection, lease: shards.Lease, *, successor: str = "") -> None:
        there.append([member.node.name for member in await nodes.list_members(connection)])
        await release(connection, lease, successor=successor)

    monkeypatch.setattr(shards, "release", noting)
    await first.stopped()
    assert there == [[]], "nobody to hand anything to"
