"""A request repeated under its idempotency key makes one message, whatever crashes in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa

from harness import metrics
from tests import statements
from tests.coreapp.conftest import BUSINESS, Client, Running, World
from tests.coreapp.signals import soon
from tests.manual_clock import ManualClock
from tidings.storage import outages
from tidings.storage.business import idempotency, messages, shards
from tidings.storage.database import Connection, Database
from tidings.wire import core
from tidings.wire.addresses import shard_of

PHONE = "15550110001"
FIRST_SHARD, SECOND_SHARD = (
    next(number for number in (f"1555011{n:04}" for n in range(100)) if shard_of(number, 2) == shard)
    for shard in (0, 1)
)
CONTENT = b'{"type":"text","text":{"body":"once"}}'


async def send(
    client: Client, key: str, fingerprint: bytes = b"f" * 32, to: str = PHONE, username: str = "admin"
) -> Any:
    return await client.call(
        lambda n: core.AcceptMessage(
            n, BUSINESS, to, "text", CONTENT, "request", idempotency_key=key, fingerprint=fingerprint, username=username
        )
    )


async def ready(world: World) -> Running:
    """Coreapp that owns the only shard and has read the used keys."""
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    await soon(lambda: complete(running))
    return running


async def alone(world: World) -> Running:
    """Coreapp that owns both shards and has read the used keys."""
    world.add_phones(FIRST_SHARD, SECOND_SHARD)
    running = await world.start(node="first", shards=2)
    await world.connected(running)
    await soon(lambda: running.node.shards.numbers == [0, 1])
    for number in (FIRST_SHARD, SECOND_SHARD):
        await running.client.check(number, of=number)
    await soon(lambda: complete(running))
    return running


async def joined(world: World, first: Running) -> Running:
    """Start a second Coreapp, which gets the second shard."""
    second = await world.start(node="second", shards=2, owned=False)
    await soon(lambda: (first.node.shards.numbers, second.node.shards.numbers) == ([0], [1]))
    await second.client.check(SECOND_SHARD, of=SECOND_SHARD)
    return second


async def two_owners(world: World) -> tuple[Running, Running]:
    first = await alone(world)
    return first, await joined(world, first)


def complete(running: Running) -> bool:
    return running.node.process.used_keys.complete.is_set()


async def count(world: World) -> int:
    async with world.database.reading() as connection:
        return sum((await messages.count_by_status(connection)).values())


async def test_a_repeated_request_gets_the_first_response_and_creates_one_message(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    first = await send(running.client, "k1")
    assert isinstance(first, core.Accepted)
    again = await send(running.client, "k1")
    other = await send(running.client, "k2")
    assert (again.id, again.wa_id) == (first.id, PHONE)
    assert other.id != first.id
    assert await count(world) == 2


async def test_another_body_under_the_same_key_is_refused(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    await send(running.client, "k1")
    response = await send(running.client, "k1", b"g" * 32)
    assert isinstance(response, core.KeyTaken)
    assert not response.in_progress
    assert await count(world) == 1


async def test_a_concurrent_request_under_the_same_key_is_refused_as_in_progress(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    responses = await asyncio.gather(*(send(running.client, "k1") for _ in range(5)))
    accepted = [response for response in responses if isinstance(response, core.Accepted)]
    waiting = [response for response in responses if isinstance(response, core.KeyTaken)]
    assert len(accepted) == 1
    assert len(waiting) == 4
    assert all(response.in_progress for response in waiting)
    assert await count(world) == 1


async def test_idempotency_keys_are_separate_per_user(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    first, other = [await send(running.client, "k1", username=name) for name in ("admin", "anna")]
    later = await send(running.client, "k1", b"g" * 32, username="otto")
    assert len({first.id, other.id, later.id}) == 3
    assert (await send(running.client, "k1", username="admin")).id == first.id
    assert (await send(running.client, "k1", username="anna")).id == other.id
    assert (await send(running.client, "k1", b"g" * 32, username="otto")).id == later.id
    assert not (await send(running.client, "k1", b"g" * 32, username="anna")).in_progress
    assert await count(world) == 3


async def test_concurrent_requests_of_two_users_with_the_same_key_are_serialised(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    first, waits = await asyncio.gather(*(send(running.client, "k1", username=name) for name in ("admin", "anna")))
    assert (type(first), type(waits), waits.in_progress) == (core.Accepted, core.KeyTaken, True)
    other = await send(running.client, "k1", username="anna")
    assert (await send(running.client, "k1", username="admin")).id == first.id != other.id


@pytest.mark.parametrize(("first", "repeat"), [("", "admin"), ("admin", "")])
async def test_a_repeat_through_a_webapp_of_another_release_creates_one_message(
    world: World, first: str, repeat: str
) -> None:
    """A Webapp of the previous release does not name the user."""
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    at_once = await asyncio.gather(*(send(running.client, "k1", username=name) for name in (first, repeat)))
    assert [type(response) for response in at_once] == [core.Accepted, core.KeyTaken]
    assert (await send(running.client, "k1", username=repeat)).id == at_once[0].id
    assert not (await send(running.client, "k1", b"g" * 32, username=repeat)).in_progress
    assert await count(world) == 1


async def test_50_concurrent_requests_with_one_key_create_one_message(
    world: World,
) -> None:
    running = await ready(world)
    responses = await asyncio.gather(*(send(running.client, "k1") for _ in range(50)))
    accepted = {response.id for response in responses if isinstance(response, core.Accepted)}
    others = [response for response in responses if not isinstance(response, core.Accepted)]
    assert len(accepted) == 1
    assert all(isinstance(response, core.KeyTaken) and response.in_progress for response in others)
    assert (await send(running.client, "k1")).id in accepted
    assert await count(world) == 1


async def test_only_used_keys_are_looked_up_in_the_database(world: World) -> None:
    running = await ready(world)
    by_filter = metrics.value("tidings_idempotency_keys_total", checked="filter")
    by_database = metrics.value("tidings_idempotency_keys_total", checked="database")
    with statements.recorded("FROM idempotency_keys") as noted:
        responses = [await send(running.client, f"k{n}") for n in range(20)]
    assert noted == []
    with statements.recorded("FROM idempotency_keys") as noted:
        assert (await send(running.client, "k7")).id == responses[7].id
    assert len(noted) == 1
    assert metrics.value("tidings_idempotency_keys_total", checked="filter") == by_filter + 20
    assert metrics.value("tidings_idempotency_keys_total", checked="database") == by_database + 1
    assert metrics.value("tidings_idempotency_filter_complete") == 1
    assert await count(world) == 20


async def test_with_several_owners_fresh_keys_are_looked_up_in_batches(world: World) -> None:
    first, second = await two_owners(world)
    with statements.recorded("FROM idempotency_keys") as noted:
        responses = await asyncio.gather(*(send(first.client, f"k{n}", to=FIRST_SHARD) for n in range(200)))
    assert all(isinstance(response, core.Accepted) for response in responses)
    assert 1 <= len(noted) <= 20
    assert not complete(first)
    assert not complete(second)


async def test_a_key_is_known_to_other_shards_of_the_process(world: World) -> None:
    running = await alone(world)
    assert isinstance(await send(running.client, "k1", to=FIRST_SHARD), core.Accepted)
    refused = await send(running.client, "k1", b"g" * 32, to=SECOND_SHARD)
    assert isinstance(refused, core.KeyTaken)
    assert not refused.in_progress
    assert await count(world) == 1


async def test_a_key_is_known_to_the_owner_of_another_shard(world: World) -> None:
    first, second = await two_owners(world)
    accepted = await send(first.client, "k1", to=FIRST_SHARD)
    assert isinstance(accepted, core.Accepted)
    refused = await send(second.client, "k1", b"g" * 32, to=SECOND_SHARD)
    assert isinstance(refused, core.KeyTaken)
    assert not refused.in_progress
    assert await count(world) == 1


async def test_a_key_is_known_after_its_shard_moved_to_another_process_and_back(world: World) -> None:
    first = await alone(world)
    before = await send(first.client, "before", to=SECOND_SHARD)
    second = await joined(world, first)
    during = await send(second.client, "during", to=SECOND_SHARD)
    assert (await send(second.client, "before", to=SECOND_SHARD)).id == before.id
    await second.stopped()
    # At once, while the table is read, and later.
    await soon(lambda: first.node.shards.numbers == [0, 1])
    for _ in range(2):
        assert (await send(first.client, "before", to=SECOND_SHARD)).id == before.id
        assert (await send(first.client, "during", to=SECOND_SHARD)).id == during.id
        await soon(lambda: complete(first))
    assert await count(world) == 2


class Breaking(Database):
    """Database whose connection breaks after the next `breaks` commits of a key. The lease is lost at the same time."""

    breaks = 0

    @contextlib.asynccontextmanager
    async def transaction(self, **limits: Any) -> AsyncIterator[Connection]:
        executed: list[str] = []
        async with super().transaction(**limits) as connection:
            # Of this transaction alone: leases are renewed at the same time.
            listened = connection.sync_connection
            sa.event.listen(listened, "before_cursor_execute", lambda _, cursor, text, *more: executed.append(text))
            yield connection
        # Only a journal writes keys.
        if self.breaks and any("INSERT" in text and "idempotency_keys" in text for text in executed):
            self.breaks -= 1
            async with super().transaction() as connection:
                await connection.execute(shards.table.update().values(epoch=shards.table.c.epoch + 1))
            error = sa.exc.OperationalError("COMMIT", {}, pymysql.err.OperationalError(2013, "Lost connection"))
            outages.note_commit(error)
            raise error


@pytest.fixture
async def breaking(world: World) -> AsyncIterator[Breaking]:
    """The database of the world."""
    world.database = breaking = Breaking(world.database.settings, "business")
    yield breaking
    await world.close()
    await breaking.close()


async def test_a_key_with_an_unknown_commit_outcome_is_known(world: World, breaking: Breaking) -> None:
    running = await ready(world)
    epoch = running.shard.context.lease.epoch
    breaking.breaks = 1
    refused = await send(running.client, "k1")
    assert isinstance(refused, core.Refused)
    assert refused.unknown
    assert breaking.breaks == 0
    await soon(lambda: any(shard.context.lease.epoch > epoch + 1 for shard in running.node.shards))
    # At once, while the table is read, and later.
    responses = []
    for _ in range(2):
        responses.append(await send(running.client, "k1"))
        await soon(lambda: complete(running))
    assert [type(response) for response in responses] == [core.Accepted] * 2
    assert len({response.id for response in responses}) == 1
    assert await count(world) == 1


async def test_a_refused_request_does_not_use_its_key(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start(check_unknown=False)
    await world.connected(running)
    refused = await send(running.client, "k1")
    assert isinstance(refused, core.Refused)
    assert refused.code == 1006
    await running.client.check(PHONE)
    assert isinstance(await send(running.client, "k1"), core.Accepted)


async def test_the_new_owner_after_a_kill_returns_the_first_response(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    first = await send(running.client, "k1")
    await running.killed()
    taken_over = await world.start(node="second")
    # At once, while the table is read, and later.
    for _ in range(2):
        again = await send(taken_over.client, "k1")
        assert isinstance(again, core.Accepted)
        assert again.id == first.id
        await soon(lambda: complete(taken_over))
    assert await count(world) == 1


async def test_a_key_expires_after_a_day(world: World) -> None:
    world.add_phones(PHONE)
    clock = ManualClock()
    running = await world.start(clock=clock)
    await world.connected(running)
    await running.client.check(PHONE)
    first = await send(running.client, "k1")
    clock.advance(24 * 3600 - 1)
    assert (await send(running.client, "k1")).id == first.id
    clock.advance(2)
    second = await send(running.client, "k1")
    assert second.id != first.id
    assert (await send(running.client, "k1")).id == second.id

    clock.advance(25 * 3600)
    await running.shard.retention.run_once(by_itself=True)
    async with world.database.reading() as connection:
        key = idempotency.key_of("admin", "k1")
        found = await idempotency.look_up(connection, BUSINESS, idempotency.MESSAGES, [key], 0)
        assert found[key].used is None
