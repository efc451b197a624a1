"""Contacts: one call at a time with accumulation, and the time for which a result is valid.

`REFUSING` is the rule before version 2.39, which makes visible which contacts are known.
"""

from __future__ import annotations

import asyncio
import dataclasses
import types
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from coreapp.peers import contact_cache
from coreapp.peers.contact_cache import ContactCache
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.signals import soon
from tests.manual_clock import ManualClock
from tidings.aio import batcher
from tidings.wire import codes, core
from tidings.wire import device as frames

NUMBERS = [f"155501100{n:02}" for n in range(40)]
WEEK = 7 * 24 * 3600
MINUTES = 300
REFUSING = {"check_unknown": False}
TEXT = b'{"type":"text","text":{"body":"hi"}}'


async def first_call_in_flight(world: World) -> tuple[Running, asyncio.Task[Any], asyncio.Event]:
    """Start a Coreapp and a contacts call for the first number. The network responds once the event is set."""
    gate = world.network.gates[frames.Check] = asyncio.Event()
    running = await world.start()
    await world.connected(running)
    first = asyncio.create_task(running.client.check(NUMBERS[0]))
    await world.network.signals.until(lambda: len(world.network.checks) == 1)
    return running, first, gate


async def test_checks_during_a_call_are_batched_into_the_next(world: World) -> None:
    world.add_phones(*NUMBERS)
    running, first, gate = await first_call_in_flight(world)
    others = [asyncio.create_task(running.client.check(number, "+" + number)) for number in NUMBERS[1:]]
    await soon(lambda: running.shard.peers.contacts.pending == 39)
    assert len(world.network.checks) == 1
    gate.set()
    responses = [await first, *[await task for task in others]]
    assert all(contact.status == "valid" for contacts in responses for contact in contacts)
    assert [len(numbers) for numbers in world.network.checks] == [1, 39]


async def test_a_client_that_received_its_result_joins_the_next_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact_cache, "PAUSE_SHARE", 20.0)
    monkeypatch.setattr(batcher, "LONGEST_PAUSE", 5.0)
    world.add_phones(*NUMBERS[:3])
    running, first, gate = await first_call_in_flight(world)
    second = asyncio.create_task(running.client.check(NUMBERS[1]))
    await soon(lambda: running.shard.peers.contacts.pending == 1)
    gate.set()
    await first
    assert [contact.status for contact in await running.client.check(NUMBERS[2])] == ["valid"]
    await second
    assert world.network.checks == [[NUMBERS[0]], NUMBERS[1:3]]


async def test_a_message_after_a_call_without_wait_does_not_wait_for_the_result(world: World) -> None:
    world.add_phones(NUMBERS[0])
    gate = world.network.gates[frames.Check] = asyncio.Event()
    running = await world.start()
    await world.connected(running)
    for number in NUMBERS[:2]:
        assert (await running.client.check(number, wait=False))[0].status == "processing"
    valid, invalid = [await running.client.send(number) for number in NUMBERS[:2]]
    await world.sink.signals.until(lambda: {(valid.id, "sent"), (invalid.id, "failed")} <= set(world.sink.labels()))
    (failed,) = [post for post in world.sink.posts if post.label == (invalid.id, "failed")]
    assert failed.body["statuses"][0]["errors"][0]["code"] == 1013
    gate.set()
    await soon(lambda: not running.shard.peers.contacts.is_checked_without_wait(NUMBERS[1]))
    assert (await running.client.send(NUMBERS[1])).code == 1013


async def test_a_message_after_a_call_without_wait_is_refused_under_the_rule_before_2_39(world: World) -> None:
    world.add_phones(NUMBERS[0])
    world.network.gates[frames.Check] = asyncio.Event()
    running = await world.start(**REFUSING)
    await world.connected(running)
    await running.client.check(NUMBERS[0], wait=False)
    assert (await running.client.send(NUMBERS[0])).code == 1006


async def test_messages_to_unknown_recipients_join_the_next_batched_check(
    world: World,
) -> None:
    world.add_phones(*NUMBERS[:6])
    gate = world.network.gates[frames.Check] = asyncio.Event()
    running = await world.start()
    await world.connected(running)
    first = asyncio.create_task(running.client.send(NUMBERS[0]))
    await world.network.signals.until(lambda: len(world.network.checks) == 1)
    sends = [asyncio.create_task(running.client.send(number)) for number in (*NUMBERS[1:4], NUMBERS[9])]
    contacts = asyncio.create_task(running.client.check(*NUMBERS[4:6]))
    await soon(lambda: running.shard.peers.contacts.pending == 6)
    gate.set()
    assert isinstance(await first, core.Accepted)
    assert [type(await send) for send in sends[:3]] == [core.Accepted] * 3
    assert (await sends[3]).code == 1013
    assert [contact.status for contact in await contacts] == ["valid"] * 2
    assert world.network.checks[0] == [NUMBERS[0]]
    assert sorted(world.network.checks[1]) == sorted([*NUMBERS[1:6], NUMBERS[9]])
    for number in NUMBERS[:6]:
        assert isinstance(await running.client.send(number), core.Accepted)
    assert len(world.network.checks) == 2


async def test_a_silent_network_fails_checks_and_a_slow_one_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact_cache, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(contact_cache, "POLL_SECONDS", 0.1)
    world.add_phones(*NUMBERS[:2])
    gate = world.network.gates[frames.Check] = asyncio.Event()
    running = await world.start()
    await world.connected(running)
    async with asyncio.timeout(5):
        assert [contact.status for contact in await running.client.check(NUMBERS[0])] == ["failed"]
        slow = asyncio.create_task(running.client.check(NUMBERS[1]))
        for number in range(8):
            # The network sends other frames, but no response to this request.
            world.network.deliver(NUMBERS[0], frames.DELIVERED, id=f"in-{number}", refs=["unknown"])
            await asyncio.wait([slow], timeout=0.1)
            assert not slow.done()
        gate.set()
        assert [contact.status for contact in await slow] == ["valid"]


async def test_concurrent_checks_share_one_timeout_during_a_database_outage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact_cache, "RETRY_SECONDS", 2.0)
    monkeypatch.setattr(contact_cache, "CACHED", 1)
    world.add_phones(NUMBERS[2])
    running = await world.start()
    await world.connected(running)
    assert [contact.status for contact in await running.client.check(NUMBERS[2])] == ["valid"]
    away = asyncio.Event()
    reads = 0

    async def hang(*args: object, **options: object) -> None:
        nonlocal reads
        reads += 1
        await away.wait()

    replace_database(running.shard.peers.contacts, hang)
    loop = asyncio.get_running_loop()

    async def call(number: str) -> object:
        response = await running.client.call(lambda n: core.CheckContacts(n, BUSINESS, [number], True, False))
        return getattr(response, "code", response)

    first = asyncio.create_task(call(NUMBERS[0]))
    await soon(lambda: reads > 0)
    started = loop.time()
    assert [await call(NUMBERS[1]), await first] == [codes.NOT_READY] * 2
    # Sequential calls would take 4 s.
    assert loop.time() - started < 3.8
    away.set()


async def test_a_valid_number_is_cached_for_seven_days_across_a_restart(world: World) -> None:
    clock = ManualClock()
    world.add_phones(NUMBERS[0])
    running = await world.start(clock=clock, **REFUSING)
    await world.connected(running)
    for _ in range(2):
        assert [contact.status for contact in await running.client.check(NUMBERS[0])] == ["valid"]
    await running.stopped()
    clock.advance(WEEK - 1)
    running = await world.start(clock=clock, node="second", **REFUSING)
    await world.connected(running)
    assert [contact.status for contact in await running.client.check(NUMBERS[0])] == ["valid"]
    assert len(world.network.checks) == 1
    accepted = await running.client.send(NUMBERS[0])
    assert isinstance(accepted, core.Accepted)
    await world.sink.signals.until(lambda: (accepted.id, "sent") in world.sink.labels())
    clock.advance(2)
    refused = await running.client.send(NUMBERS[0])
    assert (refused.code, refused.details) == (1006, "unknown contact")
    assert [contact.status for contact in await running.client.check(NUMBERS[0])] == ["valid"]
    assert len(world.network.checks) == 2


def replace_database(contacts: ContactCache, query: Callable[..., Awaitable[Any]]) -> None:
    """Let the cache query another database."""
    database: Any = types.SimpleNamespace(query=query)
    contacts.context = dataclasses.replace(contacts.context, database=database)


async def count_reads(running: Running, number: str) -> int:
    """Return the number of database queries while this number is checked."""
    contacts, reads = running.shard.peers.contacts, 0
    query = running.database.query

    async def counted(*args: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        return await query(*args, **options)

    replace_database(contacts, counted)
    await running.client.check(number)
    return reads


async def test_a_complete_contact_cache_needs_no_database_queries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact_cache, "PAGE", 2)
    world.add_phones(*NUMBERS[:7])
    running = await world.start()
    await world.connected(running)
    await soon(lambda: running.shard.peers.contacts.is_complete)
    assert await count_reads(running, NUMBERS[0]) == 0
    await running.client.check(*NUMBERS[1:5])
    await running.stopped()
    running = await world.start(node="second")
    await world.connected(running)
    await soon(lambda: running.shard.peers.contacts.is_complete)
    checks = len(world.network.checks)
    assert [await count_reads(running, number) for number in NUMBERS[:5]] == [0] * 5
    assert len(world.network.checks) == checks, "they were all read"
    assert await count_reads(running, NUMBERS[5]) == 0
    assert len(world.network.checks) == checks + 1
    await running.stopped()
    # A full cache may lack some contacts.
    monkeypatch.setattr(contact_cache, "CACHED", 6)
    running = await world.start(node="third")
    await world.connected(running)
    await soon(lambda: len(running.shard.peers.contacts._cache) == 6)
    assert not running.shard.peers.contacts.is_complete
    assert await count_reads(running, NUMBERS[6]) == 1


async def test_an_invalid_number_is_cached_for_minutes_across_a_restart(world: World) -> None:
    clock = ManualClock()
    running = await world.start(clock=clock)
    await world.connected(running)
    assert [contact.status for contact in await running.client.check(NUMBERS[0])] == ["invalid"]
    world.add_phones(NUMBERS[0])
    clock.advance(MINUTES - 1)
    assert (await running.client.send(NUMBERS[0])).code == 1013
    await running.stopped()
    running = await world.start(clock=clock, node="second")
    await world.connected(running)
    assert (await running.client.send(NUMBERS[0])).code == 1013
    assert len(world.network.checks) == 1
    clock.advance(2)
    assert isinstance(await running.client.send(NUMBERS[0]), core.Accepted)
    assert len(world.network.checks) == 2


async def test_an_identity_notice_makes_a_number_valid_at_once(world: World) -> None:
    running = await world.start()
    await world.connected(running)
    assert (await running.client.send(NUMBERS[0])).code == 1013
    (phone,) = world.add_phones(NUMBERS[0])
    world.network.deliver(NUMBERS[0], frames.IDENTITY, id="in-1", body=phone.identity.public)
    await world.network.signals.until(lambda: "in-1" in world.network.acknowledged)
    assert isinstance(await running.client.send(NUMBERS[0]), core.Accepted)
    assert len(world.network.checks) == 1


async def test_a_number_that_writes_during_a_call_stays_valid(world: World) -> None:
    running, first, gate = await first_call_in_flight(world)
    (phone,) = world.add_phones(NUMBERS[0])
    kind, body = phone.write(TEXT, world.network.business_bundle(one_time=None))
    world.network.deliver(NUMBERS[0], kind, id="in-1", body=body)
    await world.network.signals.until(lambda: "in-1" in world.network.acknowledged)
    # The network read its directory before the number registered.
    del world.network.phones[NUMBERS[0]]
    gate.set()
    assert [contact.status for contact in await first] == ["valid"]
    assert [contact.status for contact in await running.client.check(NUMBERS[0])] == ["valid"]
    await running.stopped()
    running = await world.start(node="second")
    await world.connected(running)
    assert [contact.status for contact in await running.client.check(NUMBERS[0])] == ["valid"]
    assert len(world.network.checks) == 1


async def test_force_check_repeats_the_check_and_replaces_the_result(world: World) -> None:
    running = await world.start()
    await world.connected(running)
    assert (await running.client.check(NUMBERS[0]))[0].status == "invalid"
    refused = await running.client.send(NUMBERS[0])
    assert refused.code == 1013
    world.add_phones(NUMBERS[0])
    assert (await running.client.check(NUMBERS[0]))[0].status == "invalid"
    assert (await running.client.check(NUMBERS[0], force=True))[0] == core.Contact(NUMBERS[0], "valid", NUMBERS[0])
    assert isinstance(await running.client.send(NUMBERS[0]), core.Accepted)
    assert len(world.network.checks) == 2


async def test_the_sender_of_a_message_is_a_valid_contact_across_a_restart(world: World) -> None:
    clock = ManualClock()
    running = await world.start(clock=clock, **REFUSING)
    await world.connected(running)
    assert (await running.client.check(NUMBERS[0]))[0].status == "invalid"
    assert (await running.client.send(NUMBERS[1])).code == 1006
    phones = world.add_phones(*NUMBERS[:3])
    for number, phone in zip(NUMBERS, phones[:2], strict=False):
        kind, body = phone.write(TEXT, world.network.business_bundle(one_time=None))
        world.network.deliver(number, kind, id=f"in-{number}", body=body)
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 2)
    for number in NUMBERS[:2]:
        assert isinstance(await running.client.send(number), core.Accepted)
    assert (await running.client.check(NUMBERS[0]))[0] == core.Contact(NUMBERS[0], "valid", NUMBERS[0])
    assert (await running.client.send(NUMBERS[2])).code == 1006
    await running.stopped()
    clock.advance(WEEK - 1)
    running = await world.start(clock=clock, node="second", **REFUSING)
    await world.connected(running)
    assert isinstance(await running.client.send(NUMBERS[0]), core.Accepted)
    clock.advance(2)
    assert (await running.client.send(NUMBERS[0])).code == 1006
    assert len(world.network.checks) == 1


async def test_a_regular_sender_stays_a_valid_contact(world: World) -> None:
    clock = ManualClock()
    running = await world.start(clock=clock, **REFUSING)
    await world.connected(running)
    (phone,) = world.add_phones(NUMBERS[0])
    for day in range(9):
        kind, body = phone.write(TEXT, world.network.business_bundle(one_time=None))
        world.network.deliver(NUMBERS[0], kind, id=f"in-{day}", body=body)
        await world.network.signals.until(lambda seen=f"in-{day}": seen in world.network.acknowledged)  # type: ignore[misc]
        clock.advance(WEEK / 7)
    assert isinstance(await running.client.send(NUMBERS[0]), core.Accepted)


async def test_an_undecryptable_message_creates_no_contact(world: World) -> None:
    running = await world.start(**REFUSING)
    await world.connected(running)
    world.network.deliver(NUMBERS[0], frames.MESSAGE, id="in-1", body=b"nonsense")
    await world.network.signals.until(lambda: "in-1" in world.network.acknowledged)
    assert (await running.client.send(NUMBERS[0])).code == 1006


async def test_no_wait_returns_processing_and_notifies_the_webhook(world: World) -> None:
    world.add_phones(NUMBERS[0])
    running = await world.start()
    await world.connected(running)
    inputs = ["+1 (555) 011-0000", NUMBERS[1], "nonsense"]
    contacts = await running.client.check(*inputs, wait=False)
    assert [contact.status for contact in contacts] == ["processing", "processing", "invalid"]
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 1)
    assert world.sink.posts[0].body == {
        "contacts": [
            {"input": "+1 (555) 011-0000", "status": "valid", "wa_id": NUMBERS[0]},
            {"input": NUMBERS[1], "status": "invalid"},
        ]
    }


async def test_a_planned_stop_responds_to_the_calls_that_do_not_wait(world: World) -> None:
    world.add_phones(*NUMBERS[:2])
    world.network.gates[frames.Check] = asyncio.Event()
    running = await world.start()
    await world.connected(running)
    for number in NUMBERS[:2]:
        assert (await running.client.check(number, wait=False))[0].status == "processing"
    await world.network.signals.until(lambda: len(world.network.checks) == 1)
    await running.stopped()
    del world.network.gates[frames.Check]
    running = await world.start(node="second")
    await world.connected(running)
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 2)
    assert [post.body["contacts"] for post in world.sink.posts] == [
        [{"input": number, "status": "failed"}] for number in NUMBERS[:2]
    ]


async def test_a_full_callback_queue_refuses_calls_that_do_not_wait(world: World) -> None:
    await world.configure(callback_backoff_delay_ms=1)
    world.sink.respond = lambda post: 500
    world.settings = world.settings.model_copy(update={"callback_queue_limit": 3})
    running = await world.start()
    await world.connected(running)
    for count, number in enumerate(NUMBERS[:3], start=1):
        await running.client.check(number, wait=False)
        await soon(lambda count=count: len(running.shard.webhook.queue) == count)  # type: ignore[misc]
    refused = await running.client.call(lambda n: core.CheckContacts(n, BUSINESS, [NUMBERS[3]]))
    assert isinstance(refused, core.Refused)
    assert (refused.code, refused.retry_after > 0) == (1016, True)
    # Neither needs a callback.
    assert [found.status for found in await running.client.check(NUMBERS[0], wait=False)] == ["invalid"]
    assert [found.status for found in await running.client.check(NUMBERS[3])] == ["invalid"]
    assert len(running.shard.webhook.queue) == 3


async def test_without_a_webhook_results_of_calls_that_do_not_wait_are_dropped_at_the_limit(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.configure(webhooks={"url": ""})
    world.settings = world.settings.model_copy(update={"callback_queue_limit": 3})
    running = await world.start()
    await world.connected(running)
    for count, number in enumerate(NUMBERS[:6], start=1):
        assert (await running.client.check(number, wait=False))[0].status == "processing"
        assert (await running.client.check(number))[0].status == "invalid"
        await soon(lambda count=count: len(running.shard.webhook.queue) == min(count, 3))  # type: ignore[misc]
    await soon(lambda: [record.message for record in caplog.records].count("contacts.not_reported") == 3)
    assert len(running.shard.webhook.queue) == 3


async def test_without_the_network_only_cached_contacts_are_returned(world: World) -> None:
    world.add_phones(NUMBERS[0], NUMBERS[1])
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBERS[0])
    world.network.away()
    await soon(lambda: not running.shard.link.connected)
    statuses = [contact.status for contact in await running.client.check(NUMBERS[0], NUMBERS[1])]
    assert statuses == ["valid", "failed"]
    assert (await running.client.check(NUMBERS[1], wait=False))[0].status == "processing"
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 1)
    assert world.sink.posts[0].body == {"contacts": [{"input": NUMBERS[1], "status": "failed"}]}
    health = await running.client.call(core.GetHealth)
    assert health.gateway_status == "connecting"


async def test_an_unknown_recipient_is_refused_under_the_rule_before_2_39(world: World) -> None:
    running = await world.start(**REFUSING)
    await world.connected(running)
    unknown = await running.client.send(NUMBERS[0])
    assert (unknown.code, unknown.details) == (1006, "unknown contact")
    assert world.network.checks == []


async def test_a_message_to_the_own_number_is_refused(world: World) -> None:
    running = await world.start()
    await world.connected(running)
    assert (await running.client.send("15550000000")).code == 1021


async def test_a_message_needs_no_prior_contacts_call(world: World) -> None:
    world.add_phones(NUMBERS[0])
    running = await world.start()
    await world.connected(running)
    for _ in range(2):
        assert isinstance(await running.client.send(NUMBERS[0]), core.Accepted)
    assert world.network.checks == [[NUMBERS[0]]]
    assert (await running.client.send(NUMBERS[1])).code == 1013
    world.network.away()
    await soon(lambda: not running.shard.link.connected)
    away = await running.client.send(NUMBERS[2])
    assert (away.code, away.retry_after) == (1016, 5)
    assert isinstance(await running.client.send(NUMBERS[0]), core.Accepted)


@pytest.mark.parametrize("wait", [True, False])
async def test_a_call_is_refused_when_too_many_numbers_wait_for_a_check(
    world: World, monkeypatch: pytest.MonkeyPatch, wait: bool
) -> None:
    monkeypatch.setattr(contact_cache, "MAX_WAITING", 2)
    running, first, gate = await first_call_in_flight(world)
    request = core.CheckContacts(0, BUSINESS, NUMBERS[1:4], wait, False)
    response = await running.client.call(lambda n: msgspec.structs.replace(request, n=n))
    gate.set()
    await first
    assert isinstance(response, core.Refused), response
    assert response.code == codes.OVERLOADED


async def test_a_result_from_a_clock_that_was_far_ahead_is_not_valid(world: World) -> None:
    clock = ManualClock()
    running = await world.start(clock=clock)
    await world.connected(running)
    clock.jump(365 * 86_400)
    assert [contact.status for contact in await running.client.check(*NUMBERS[:2])] == ["invalid"] * 2
    clock.jump(-365 * 86_400)
    world.add_phones(*NUMBERS[:2])
    assert [contact.status for contact in await running.client.check(NUMBERS[0])] == ["valid"]
    await running.stopped()
    running = await world.start(clock=clock, node="second")
    await world.connected(running)
    assert [contact.status for contact in await running.client.check(*NUMBERS[:2])] == ["valid"] * 2
    assert sorted(map(len, world.network.checks)) == [1, 1, 2]


async def test_a_repeated_call_that_does_not_wait_has_one_callback(world: World) -> None:
    gate = world.network.gates[frames.Check] = asyncio.Event()
    running = await world.start()
    await world.connected(running)

    async def call(number: str, call_id: str) -> list[str]:
        made = await running.client.call(lambda n: core.CheckContacts(n, BUSINESS, [number], id=call_id))
        return [found.status for found in made.contacts]

    both = await asyncio.gather(call(NUMBERS[0], "first"), call(NUMBERS[0], "first"))
    assert [*both, await call(NUMBERS[0], "first")] == [["processing"]] * 3
    assert await call(NUMBERS[1], "second") == ["processing"]
    gate.set()
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 2)
    await running.stopped()
    assert [post.body["contacts"][0]["input"] for post in world.sink.posts] == NUMBERS[:2]
    first = world.sink.posts[0].event_id
    # The response was lost with its owner.
    running = await world.start(node="second")
    await world.connected(running)
    made = await running.client.call(lambda n: core.CheckContacts(n, BUSINESS, [NUMBERS[0]], False, True, id="first"))
    assert [found.status for found in made.contacts] == ["processing"]
    await world.sink.signals.until(lambda: len(world.sink.posts) == 3)
    assert world.sink.posts[2].event_id == first != world.sink.posts[1].event_id
