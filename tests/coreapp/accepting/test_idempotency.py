"""A request that is repeated under its key makes one message, whatever crashes in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests import statements
from tests.coreapp.conftest import BUSINESS, Client, World
from tidings.runtime.clock import ManualClock
from tidings.storage.business import idempotency, messages
from tidings.wire import core

PHONE = "15550110001"
CONTENT = b'{"type":"text","text":{"body":"once"}}'


async def send(
    client: Client, key: str, fingerprint: bytes = b"f" * 32, to: str = PHONE, username: str = "admin"
) -> Any:
    return await client.ask(
        lambda n: core.AcceptMessage(
            n, BUSINESS, to, "text", CONTENT, "request", idempotency_key=key, fingerprint=fingerprint, username=username
        )
    )


async def count(world: World) -> int:
    async with world.database.reading() as connection:
        return sum((await messages.count_by_status(connection)).values())


async def test_a_repeated_request_gets_the_first_answer_and_makes_one_message(world: World) -> None:
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
    answer = await send(running.client, "k1", b"g" * 32)
    assert isinstance(answer, core.KeyTaken)
    assert not answer.in_progress
    assert await count(world) == 1


async def test_of_two_at_the_same_time_one_is_told_to_wait(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    answers = await asyncio.gather(*(send(running.client, "k1") for _ in range(5)))
    accepted = [answer for answer in answers if isinstance(answer, core.Accepted)]
    waiting = [answer for answer in answers if isinstance(answer, core.KeyTaken)]
    assert len(accepted) == 1
    assert len(waiting) == 4
    assert all(answer.in_progress for answer in waiting)
    assert await count(world) == 1


async def test_the_same_key_of_two_users_is_two_keys(world: World) -> None:
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


async def test_of_two_users_with_the_same_key_at_the_same_time_one_is_told_to_wait(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    first, waits = await asyncio.gather(*(send(running.client, "k1", username=name) for name in ("admin", "anna")))
    assert (type(first), type(waits), waits.in_progress) == (core.Accepted, core.KeyTaken, True)
    other = await send(running.client, "k1", username="anna")
    assert (await send(running.client, "k1", username="admin")).id == first.id != other.id


@pytest.mark.parametrize(("first", "repeat"), [("", "admin"), ("admin", "")])
async def test_a_repeat_over_a_webapp_of_the_other_release_makes_one_message(
    world: World, first: str, repeat: str
) -> None:
    """A Webapp of the release before does not name the user."""
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    at_once = await asyncio.gather(*(send(running.client, "k1", username=name) for name in (first, repeat)))
    assert [type(answer) for answer in at_once] == [core.Accepted, core.KeyTaken]
    assert (await send(running.client, "k1", username=repeat)).id == at_once[0].id
    assert not (await send(running.client, "k1", b"g" * 32, username=repeat)).in_progress
    assert await count(world) == 1


async def test_fresh_keys_at_once_share_a_statement(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    with statements.noted("FROM idempotency_keys") as noted:
        answers = await asyncio.gather(*(send(running.client, f"k{n}") for n in range(200)))
    assert all(isinstance(answer, core.Accepted) for answer in answers)
    assert 1 <= len(noted) <= 20


async def test_a_refused_request_leaves_its_key_free(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start(check_unknown=False)
    await world.connected(running)
    refused = await send(running.client, "k1")
    assert isinstance(refused, core.Refused)
    assert refused.code == 1006
    await running.client.check(PHONE)
    assert isinstance(await send(running.client, "k1"), core.Accepted)


async def test_the_first_answer_is_kept_by_whoever_takes_over_after_a_kill(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    first = await send(running.client, "k1")
    await running.killed()
    taken_over = await world.start(node="second")
    again = await send(taken_over.client, "k1")
    assert isinstance(again, core.Accepted)
    assert again.id == first.id
    assert await count(world) == 1


async def test_a_key_is_forgotten_after_a_day(world: World) -> None:
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
    await running.shard.garbage.run_once(by_itself=True)
    async with world.database.reading() as connection:
        key = idempotency.key_of("admin", "k1")
        found = await idempotency.look_up(connection, BUSINESS, idempotency.MESSAGES, [key], 0)
        assert found[key].used is None
