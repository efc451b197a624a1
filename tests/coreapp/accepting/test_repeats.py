"""A message requested again after a lost response is accepted once, whichever process owned the shard before."""

from __future__ import annotations

import asyncio
from typing import Any

from harness import metrics
from tests.coreapp.conftest import BUSINESS, Client, Running, World
from tests.coreapp.scripted_network import HOLD
from tests.manual_clock import ManualClock
from tidings.storage.business import jobs, messages
from tidings.wire import core
from tidings.wire.ids import MessageIds

PHONE = "15550110001"
IDS = MessageIds()


async def send(client: Client, message_id: str, *, repeated: bool = False, to: str = PHONE, **fields: Any) -> Any:
    content = b'{"type":"text","text":{"body":"once"}}'
    return await client.call(
        lambda n: core.AcceptMessage(
            n, BUSINESS, to, "text", content, "request", id=message_id, repeated=repeated, **fields
        )
    )


async def ready(world: World) -> Running:
    world.add_phones(PHONE)
    running = await world.start()
    await world.connected(running)
    await running.client.check(PHONE)
    return running


async def count(world: World) -> int:
    async with world.database.reading() as connection:
        return sum((await messages.count_by_status(connection)).values())


async def test_a_message_keeps_the_id_from_the_webapp_and_is_accepted_once(world: World) -> None:
    running = await ready(world)
    message_id = IDS.new()
    for repeated in (False, True, True):
        response = await send(running.client, message_id, repeated=repeated)
        assert (response.id, response.wa_id) == (message_id, PHONE)
    assert await count(world) == 1


async def test_a_repeat_of_an_unreceived_message_is_accepted(world: World) -> None:
    running = await ready(world)
    message_id = IDS.new()
    responses = await asyncio.gather(*(send(running.client, message_id, repeated=True) for _ in range(20)))
    assert {response.id for response in responses} == {message_id}
    assert await count(world) == 1


async def test_a_repeat_waits_for_the_acceptance_in_progress(world: World) -> None:
    running = await ready(world)
    message_id = IDS.new()
    responses = await asyncio.gather(
        send(running.client, message_id), *(send(running.client, message_id, repeated=True) for _ in range(5))
    )
    assert {response.id for response in responses} == {message_id}
    assert await count(world) == 1


async def test_a_message_that_arrives_after_its_repeat_is_a_duplicate(world: World) -> None:
    running = await ready(world)
    message_id = IDS.new()
    await send(running.client, message_id, repeated=True)
    assert (await send(running.client, message_id)).id == message_id
    assert await count(world) == 1


async def test_a_repeat_of_a_refused_message_is_refused_with_a_known_outcome(world: World) -> None:
    running = await world.start(check_unknown=False)
    await world.connected(running)
    for repeated in (False, True):
        refused = await send(running.client, IDS.new(), repeated=repeated, to="15550119999")
        assert (refused.code, refused.unknown) == (1006, False)
    assert await count(world) == 0


async def test_the_new_owner_after_a_kill_knows_which_messages_were_accepted(world: World) -> None:
    running = await ready(world)
    done, never = IDS.new(), IDS.new()
    await send(running.client, done)
    await running.killed()
    taken_over = await world.start(node="second")
    found = metrics.value("tidings_repeated_requests_total", found="done")
    assert (await send(taken_over.client, done, repeated=True)).id == done
    assert metrics.value("tidings_repeated_requests_total", found="done") == found + 1
    assert (await send(taken_over.client, never, repeated=True)).id == never
    assert await count(world) == 2


async def test_a_standby_refuses_a_repeat_with_an_unknown_outcome(world: World) -> None:
    await ready(world)
    standby = await world.start(node="second", owned=False)
    refused = await send(standby.client, IDS.new(), repeated=True)
    assert (refused.code, refused.unknown) == (1018, True)
    refused = await send(standby.client, IDS.new())
    assert (refused.code, refused.unknown) == (1018, False)


async def test_messages_resume_in_order_of_acceptance_despite_webapp_clock_skew(world: World) -> None:
    world.add_phones(PHONE)
    running = await world.start(clock=ManualClock())
    await world.connected(running)
    await running.client.check(PHONE)
    world.network.policy = lambda send: HOLD
    later, earlier = MessageIds(lambda: 1_700_000_005_000), MessageIds(lambda: 1_700_000_000_000)
    accepted = [maker.new() for maker in (later, earlier, earlier, later, earlier)]
    for message_id in accepted:
        await send(running.client, message_id)
    async with world.database.reading() as connection:
        assert [job.id for job in await jobs.list_jobs(connection, 0)] == accepted
