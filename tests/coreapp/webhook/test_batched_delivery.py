"""`webhooks.max_statuses_per_post` in a running Coreapp: order, redelivery, history and both formats."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from harness import polling
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.signals import soon
from tests.coreapp.sink import Post
from tests.coreapp.webhook.test_delivery import NUMBERS, running_with
from tests.coreapp.webhook.test_history import record_of, until
from tidings.storage.business import callbacks
from tidings.wire import core

Respond = Callable[[Post], int | Awaitable[int]]


async def hold(world: World) -> asyncio.Event:
    """Let posts wait until the returned event is set. They get 200 then."""
    opened = asyncio.Event()

    async def wait(post: Post) -> int:
        await opened.wait()
        return 200

    world.sink.respond = wait
    return opened


async def send(running: Running, count: int) -> list[str]:
    """Send messages whose statuses wait together."""
    return [(await running.client.send(NUMBERS[n])).id for n in range(count)]


async def queued(running: Running, count: int) -> None:
    await soon(lambda: len(running.shard.webhook.queue) == count)


def sizes(world: World) -> list[int]:
    return [len(post.body["statuses"]) for post in world.sink.posts]


async def test_due_statuses_share_posts_and_keep_the_order_of_each_message(world: World) -> None:
    await world.configure(webhooks={"max_statuses_per_post": 8})
    running = await running_with(world, 30)
    world.network.receipts = ("delivered", "read")
    opened = await hold(world)
    sent = await send(running, 30)
    await queued(running, 90)
    opened.set()
    await world.sink.signals.until(lambda: len(world.sink.labels()) == 90)
    for message_id in sent:
        assert world.sink.statuses_of(message_id) == ["sent", "delivered", "read"]
    assert 1 < max(sizes(world)) <= 8
    assert len({event_id for post in world.sink.posts for event_id in post.event_ids}) == 90
    assert all(post.event_id.startswith("batch_" if len(post.labels) > 1 else "evt_") for post in world.sink.posts)
    await queued(running, 0)

    async def none_is_stored() -> bool:
        async with world.database.reading() as connection:
            return await callbacks.count_pending(connection, 0) == 0

    await polling.until(none_is_stored, pause=0.01)


async def test_an_event_keeps_its_id_in_every_post(world: World) -> None:
    await world.configure(webhooks={"max_statuses_per_post": 100})
    running = await running_with(world, 20)
    # Refused, then unavailable, then accepted: alone, in batches, and in other batches.
    responses = iter([400] * 3 + [503] * 30)
    world.sink.respond = lambda post: next(responses, 200)
    await send(running, 20)
    await world.sink.signals.until(lambda: len(world.sink.labels()) == 20)
    names: dict[tuple[str, str], set[str]] = {}
    for post in world.sink.posts:
        for event_id, label in zip(post.event_ids, post.labels, strict=True):
            names.setdefault(label, set()).add(event_id)
    assert len(names) == 20
    assert {len(found) for found in names.values()} == {1}


async def test_the_history_has_the_attempts_of_each_event(world: World) -> None:
    await world.configure(webhooks={"max_statuses_per_post": 100, "max_concurrent_requests": 6})
    running = await running_with(world, 12)
    opened, responses = asyncio.Event(), iter([503])

    async def respond(post: Post) -> int:
        await opened.wait()
        return next(responses, 200) if len(post.labels) > 1 else 200

    world.sink.respond = respond
    await send(running, 12)
    await queued(running, 12)
    opened.set()
    rows = await until(world, "done", 12)
    (failed,) = [post for post in world.sink.posts if post.status == 503]
    assert len(failed.labels) > 1
    for row in rows:
        attempts = (await record_of(world, row.seq)).attempts
        posts = [post.status for post in world.sink.posts if row.event_id in post.event_ids]
        assert [(one.attempt, one.status) for one in attempts] == list(enumerate(posts, 1))
        text = await running.client.call(lambda n, row=row: core.ReadCallback(n, BUSINESS, row.seq))
        assert text.body.count(b'"id":"%s"' % row.message_id.encode()) == 1
        assert text.responses == [core.AttemptResponse(one.at, b"ok") for one in attempts]


async def test_a_failing_event_shows_that_it_was_refused_with_others(world: World) -> None:
    await world.configure(webhooks={"max_statuses_per_post": 100}, callback_backoff_delay_ms=60_000)
    await world.configure(max_callback_backoff_delay_ms=60_000)
    running = await running_with(world, 10)
    opened = asyncio.Event()

    async def respond(post: Post) -> int:
        await opened.wait()
        return 503 if len(post.labels) > 1 else 200

    world.sink.respond = respond
    await send(running, 10)
    await queued(running, 10)
    opened.set()
    failing = await until(world, "failing", 1)
    refused = [post for post in world.sink.posts if post.status == 503]
    for row in failing:
        sizes = [len(post.labels) for post in refused if row.event_id in post.event_ids]
        assert [row.last_error] == [f"HTTP 503 to {size} callbacks in one post" for size in sizes]


async def test_a_restarted_coreapp_posts_the_events_of_an_unfinished_batch_again(world: World) -> None:
    await world.configure(webhooks={"max_statuses_per_post": 100})
    first = await running_with(world, 20)
    await hold(world)
    sent = await send(first, 20)
    await queued(first, 20)
    await first.killed()
    before = {event_id for post in world.sink.posts for event_id in post.event_ids}
    world.sink.respond = lambda post: 200
    second = await world.start(node="second")
    await world.sink.signals.until(lambda: len(set(world.sink.labels())) == 20)
    await queued(second, 0)
    assert {message_id for message_id, _ in world.sink.labels()} == set(sent)
    after = {event_id for post in world.sink.taken() for event_id in post.event_ids}
    assert len(after) == 20
    assert before <= after


async def test_the_default_of_the_installation_applies_to_numbers_without_their_own_limit(world: World) -> None:
    running = await running_with(world, 24, statuses_per_post=5)
    opened = await hold(world)
    await send(running, 12)
    await queued(running, 12)
    opened.set()
    await world.sink.signals.until(lambda: len(world.sink.labels()) == 12)
    assert 1 < max(sizes(world)) <= 5
    await queued(running, 0)
    await world.configure(webhooks={"max_statuses_per_post": 1})
    await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS))
    posts = len(world.sink.posts)
    opened = await hold(world)
    await send(running, 12)
    await queued(running, 12)
    opened.set()
    await world.sink.signals.until(lambda: len(world.sink.labels()) == 24)
    assert sizes(world)[posts:] == [1] * 12


async def test_by_default_statuses_are_posted_singly_in_today_s_form(world: World) -> None:
    running = await running_with(world, 20)
    opened = await hold(world)
    await send(running, 20)
    await queued(running, 20)
    opened.set()
    await world.sink.signals.until(lambda: len(world.sink.labels()) == 20)
    # A slow machine may post one again.
    assert set(sizes(world)) == {1}
    for post in world.sink.posts:
        assert post.body.keys() == {"statuses"}
        assert "event_id" not in post.body["statuses"][0]
        assert post.event_id.startswith("evt_")


@pytest.mark.parametrize("persist", [True, False])
async def test_one_bad_status_delays_no_other(world: World, persist: bool) -> None:
    await world.configure(webhooks={"max_statuses_per_post": 100}, callback_persist=persist)
    running = await running_with(world, 20)
    opened, bad = asyncio.Event(), ""

    async def respond(post: Post) -> int:
        await opened.wait()
        return 500 if any(message_id == bad for message_id, _ in post.labels) else 200

    world.sink.respond = respond
    sent = await send(running, 20)
    bad = sent[13]
    await queued(running, 20)
    opened.set()
    await world.sink.signals.until(lambda: len(world.sink.labels()) == 19)
    await queued(running, 1)
    assert {message_id for message_id, _ in world.sink.labels()} == set(sent) - {bad}
    # It was posted with others first, and is alone in the end.
    await world.sink.signals.until(lambda: sum(post.labels[0][0] == bad for post in world.sink.posts) >= 4)
    with_bad = [len(post.labels) for post in world.sink.posts if (bad, "sent") in post.labels]
    assert with_bad[0] > 1
    assert with_bad[-1] == 1
    bad = ""
    await world.sink.signals.until(lambda: len(world.sink.labels()) == 20)
