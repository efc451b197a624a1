"""Callbacks on their way to a real webhook: success, retries, dead letters, signatures, concurrency."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Sequence

import pytest
from prometheus_client import REGISTRY

from coreapp import signature
from coreapp.webhook import retry
from harness import polling
from harness.webhook_body import Verifier
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.signals import soon
from tests.coreapp.sink import Post
from tests.manual_clock import ManualClock
from tidings.egress.settings import ONLY_PUBLIC
from tidings.storage.business import callback_replays, callbacks, messages
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.messages import Status
from tidings.wire import core
from tidings.wire import device as frames

NUMBERS = [f"155501100{n:02}" for n in range(30)]


async def running_with(world: World, phones: int, **more: object) -> Running:
    world.add_phones(*NUMBERS[:phones])
    running = await world.start(**more)  # type: ignore[arg-type]
    await world.connected(running)
    await running.client.check(*NUMBERS[:phones])
    return running


def test_the_signature_matches_the_specification_s_example() -> None:
    key = signature.secret_bytes("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    made = signature.headers([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert made == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    given = {name.encode(): value.encode() for name, value in made.items()}
    assert Verifier("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_valid(given, b'{"test": 2432232314}')


@pytest.mark.parametrize("secret", ["whsec_", "whsec_!!!", "whsec_" + base64.b64encode(b"x" * 23).decode(), "é"])
def test_a_secret_outside_the_specification_is_refused(secret: str) -> None:
    with pytest.raises(ValueError):
        signature.secret_bytes(secret)


@pytest.mark.parametrize(
    ("status", "any_2xx", "expected"),
    [
        (200, False, retry.Delivered()),
        (201, False, retry.RetryAfter(3.0)),
        (201, True, retry.Delivered()),
        (204, True, retry.Delivered()),
        (301, True, retry.RetryAfter(3.0)),
        (410, False, retry.RetryAfter(3.0)),
        (500, True, retry.RetryAfter(3.0)),
        (None, True, retry.RetryAfter(3.0)),
    ],
)
def test_only_200_or_configured_2xx_counts_as_success(
    status: int | None, any_2xx: bool, expected: retry.Decision
) -> None:
    assert retry.decide(status, 1, 0.0, retry.Policy(any_2xx=any_2xx)) == expected


def test_the_back_off_grows_to_its_limit_and_callbacks_are_given_up_after_a_day() -> None:
    policy = retry.Policy(backoff=3.0, max_backoff=10.0)
    delays = [retry.decide(500, attempt, 60.0, policy) for attempt in range(1, 6)]
    assert delays == [retry.RetryAfter(seconds) for seconds in (3.0, 6.0, 9.0, 10.0, 10.0)]
    assert retry.decide(500, 10, 24 * 3600.0, policy) == retry.GiveUpCallback()
    assert retry.decide(500, 10, 24 * 3600.0 - 1, policy) == retry.RetryAfter(10.0)
    # It waited for a day, and not because of the webhook.
    assert retry.decide(500, 9, 25 * 3600.0, policy) == retry.RetryAfter(10.0)
    assert retry.decide(200, 6, 25 * 3600.0, policy) == retry.Delivered()


@pytest.mark.parametrize("status", [201, 302, 404, 500])
async def test_non_200_responses_and_redirects_are_retried_with_the_same_event_id(world: World, status: int) -> None:
    running = await running_with(world, 1)
    world.sink.respond = lambda post: status if len(world.sink.posts) < 3 else 200
    await running.client.send(NUMBERS[0])
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 1)
    assert [post.status for post in world.sink.posts] == [status, status, 200]
    assert len({post.event_id for post in world.sink.posts}) == 1
    assert world.sink.redirected == 0


async def test_any_2xx_is_success_if_configured(world: World) -> None:
    running = await running_with(world, 1, accept_any_2xx=True)
    world.sink.respond = lambda post: 201
    await running.client.send(NUMBERS[0])
    await world.sink.signals.until(lambda: len(world.sink.posts) == 1)
    shard = running.shard
    await running.stopped()
    assert len(shard.webhook.queue) == 0
    async with world.database.reading() as connection:
        assert await callbacks.count_pending(connection, 0) == 0


async def test_a_connection_reset_is_a_failed_attempt(world: World) -> None:
    running = await running_with(world, 1)

    def respond(post: Post) -> int:
        if len(world.sink.posts) == 1:
            raise ConnectionResetError
        return 200

    world.sink.respond = respond
    await running.client.send(NUMBERS[0])
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 1)
    assert len(world.sink.posts) == 2


async def test_the_statuses_of_one_message_keep_their_order_under_retries(world: World) -> None:
    running = await running_with(world, 10)
    world.network.receipts = ("delivered", "read")
    counts: dict[str, int] = {}

    def respond(post: Post) -> int:
        counts[post.event_id] = counts.get(post.event_id, 0) + 1
        return 200 if counts[post.event_id] > int(post.event_id[-2:], 16) % 3 else 503

    world.sink.respond = respond
    sent = [(await running.client.send(number)).id for number in NUMBERS[:10]]
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 30)
    for message_id in sent:
        assert world.sink.statuses_of(message_id) == ["sent", "delivered", "read"]


async def test_callbacks_wait_until_a_webhook_url_is_set(world: World) -> None:
    await world.configure(webhooks={"url": ""})
    running = await running_with(world, 3)
    sent = [(await running.client.send(number)).id for number in NUMBERS[:3]]
    await world.network.signals.until(lambda: len(world.network.sends) == 3)
    assert world.sink.posts == []
    await world.configure(webhooks={"url": world.sink.url})
    assert isinstance(await running.client.call(lambda n: core.SettingsChanged(n, "15550000000")), core.Done)
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 3)
    assert sorted(label[0] for label in world.sink.labels()) == sorted(sent)


async def test_concurrent_posts_are_limited_and_a_changed_limit_applies_at_once(
    world: World,
) -> None:
    opened = asyncio.Event()

    async def wait(post: Post) -> int:
        await opened.wait()
        return 200

    world.sink.respond = wait
    running = await running_with(world, 30)
    await asyncio.gather(*(running.client.send(number) for number in NUMBERS))
    await world.sink.signals.until(lambda: world.sink.in_flight == 6)
    await world.configure(webhooks={"max_concurrent_requests": 12})
    await running.client.call(lambda n: core.SettingsChanged(n, "15550000000"))
    await world.sink.signals.until(lambda: world.sink.in_flight == 12)
    opened.set()
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 30)
    assert world.sink.most_in_flight == 12


async def test_a_callback_unaccepted_for_a_day_becomes_a_replayable_dead_letter(
    world: World,
) -> None:
    clock = ManualClock()
    running = await running_with(world, 1, clock=clock)
    world.sink.respond = lambda post: 500
    message = (await running.client.send(NUMBERS[0])).id
    shard = running.shard
    for count in range(1, retry.MIN_ATTEMPTS):
        await world.sink.signals.until(lambda count=count: len(world.sink.posts) == count)  # type: ignore[misc]
        await soon(lambda: shard.webhook.queue.scheduled > 0)
        clock.advance(24 * 3600)
        shard.webhook.queue.release_due()

    async def is_dead() -> bool:
        async with world.database.reading() as connection:
            return bool(await callbacks.list_dead(connection))

    await polling.until(is_dead, pause=0.01)
    assert len(shard.webhook.queue) == 0
    world.sink.respond = lambda post: 200
    assert (await running.client.call(lambda n: core.ReplayCallbacks(n, [], "ann@desk"))).count == 1
    async with world.database.reading() as connection:
        (audited,) = await callback_replays.list_after(connection, (0, 0))
    assert (audited.by, audited.at) == ("ann@desk", int(clock.now() * 1000))
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 1)
    assert len({post.event_id for post in world.sink.posts}) == 1
    assert world.sink.labels() == [(message, "sent")]
    assert (await running.client.call(core.ReplayCallbacks)).count == 0


async def test_a_clock_that_jumps_ahead_gives_no_callback_up(world: World) -> None:
    clock = ManualClock()
    running = await running_with(world, 1, clock=clock)
    world.sink.respond = lambda post: 500
    message = (await running.client.send(NUMBERS[0])).id
    queue = running.shard.webhook.queue
    for count in range(1, retry.MIN_ATTEMPTS + 3):
        await world.sink.signals.until(lambda count=count: len(world.sink.posts) == count)  # type: ignore[misc]
        await soon(lambda: queue.scheduled > 0)
        if count == 2:
            clock.jump(30 * 86_400)
        if count == retry.MIN_ATTEMPTS + 2:
            world.sink.respond = lambda post: 200
        clock.advance(60)
        queue.release_due()
    await world.sink.signals.until(lambda: world.sink.labels() == [(message, "sent")])


async def test_a_forbidden_webhook_address_is_a_failed_attempt_with_that_error(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    running = await running_with(world, 1, clock=clock, outgoing_webhooks=ONLY_PUBLIC)
    await running.client.send(NUMBERS[0])

    async def attempted(level: int, count: int) -> list[logging.LogRecord]:
        async with asyncio.timeout(30):
            while True:
                found = [r for r in caplog.records if r.name == "coreapp.webhook.delivery" and r.levelno == level]
                if len(found) == count:
                    return found
                await asyncio.sleep(0)

    expected = "Forbidden: 127.0.0.1 is a loopback address, which TIDINGS_OUTGOING_ALLOW does not list"
    for count in range(1, retry.MIN_ATTEMPTS):
        assert vars((await attempted(logging.WARNING, count))[-1])["error"] == expected
        clock.advance(24 * 3600)
        running.shard.webhook.queue.release_due()
    assert vars((await attempted(logging.ERROR, 1))[0])["error"] == expected
    dead: Sequence[Callback] = []
    async with asyncio.timeout(30):
        while not dead:
            async with world.database.reading() as connection:
                dead = await callbacks.list_dead(connection)
    assert [callback.last_error for callback in dead] == [expected]
    assert not world.sink.posts


async def test_a_full_callback_queue_refuses_messages_until_it_drained_to_half(
    world: World,
) -> None:
    await world.configure(callback_backoff_delay_ms=1)
    world.sink.respond = lambda post: 500
    running = await running_with(world, 1, callback_queue_limit=4)
    for count in range(1, 5):
        assert isinstance(await running.client.send(NUMBERS[0]), core.Accepted)
        await soon(lambda count=count: len(running.shard.webhook.queue) == count)  # type: ignore[misc]
    refused = await running.client.send(NUMBERS[0])
    assert isinstance(refused, core.Refused)
    assert (refused.code, refused.retry_after > 0) == (1016, True)
    world.sink.respond = lambda post: 200
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 4)
    await soon(lambda: not len(running.shard.webhook.queue))
    assert isinstance(await running.client.send(NUMBERS[0]), core.Accepted)


async def test_without_a_webhook_messages_are_accepted_and_excess_statuses_dropped(world: World) -> None:
    await world.configure(webhooks={"url": ""})
    dropped = REGISTRY.get_sample_value("tidings_statuses_dropped_total") or 0
    [phone] = world.add_phones(NUMBERS[0])
    running = await running_with(world, 0, callback_queue_limit=4)
    await running.client.check(NUMBERS[0])
    sent = []
    for _ in range(8):
        accepted = await running.client.send(NUMBERS[0])
        assert isinstance(accepted, core.Accepted)
        sent.append(accepted.id)
        async with asyncio.timeout(30):
            progress: Sequence[messages.Progress] = []
            while {row.status for row in progress} != {Status.SENT}:
                async with world.database.reading() as connection:
                    progress = await messages.list_progress(connection, BUSINESS, sent)
    assert len(running.shard.webhook.queue) == 4
    assert (await running.client.call(core.GetHealth)).statuses_dropped == 4
    assert REGISTRY.get_sample_value("tidings_statuses_dropped_total") == dropped + 4
    # Inbound messages are kept until a webhook receives them.
    phone.read(world.network.sends[0].kind, world.network.sends[0].body)
    kind, ciphertext = phone.write(b'{"type":"text","text":{"body":"hello"}}')
    world.network.deliver(NUMBERS[0], kind, id="hello", body=ciphertext)
    await soon(lambda: len(running.shard.webhook.queue) == 5)
    await world.configure(webhooks={"url": world.sink.url})
    await running.client.call(lambda n: core.SettingsChanged(n, "15550000000"))
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 5)
    assert (await running.client.call(core.GetHealth)).statuses_dropped == 0


async def test_without_a_webhook_messages_are_refused_at_the_limit_if_configured(world: World) -> None:
    await world.configure(webhooks={"url": ""})
    running = await running_with(world, 1, callback_queue_limit=4, refuses_without_webhook=True)
    sent = []
    for count in range(1, 5):
        sent.append((await running.client.send(NUMBERS[0])).id)
        await soon(lambda count=count: len(running.shard.webhook.queue) == count)  # type: ignore[misc]
    refused = await running.client.send(NUMBERS[0])
    assert isinstance(refused, core.Refused)
    assert refused.code == 1016
    # The statuses of earlier messages are still kept.
    world.network.deliver(NUMBERS[0], frames.DELIVERED, id="receipt", refs=[sent[0]])
    await soon(lambda: len(running.shard.webhook.queue) == 5)
    assert (await running.client.call(core.GetHealth)).statuses_dropped == 0
    await world.configure(webhooks={"url": world.sink.url})
    await running.client.call(lambda n: core.SettingsChanged(n, "15550000000"))
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 5)
    assert sorted(world.sink.labels()) == sorted([(sent[0], "delivered"), *((id_, "sent") for id_ in sent)])
    await soon(lambda: not len(running.shard.webhook.queue))
    assert isinstance(await running.client.send(NUMBERS[0]), core.Accepted)


async def test_callbacks_spilled_to_the_database_are_all_posted_once(world: World) -> None:
    await world.configure(callback_backoff_delay_ms=1)
    world.sink.respond = lambda post: 500
    running = await running_with(world, 30, callback_queue_limit=5)
    world.network.receipts = ("delivered", "read")
    # Admission checks the queue before the statuses are in it, so all of these are accepted.
    responses = await asyncio.gather(*(running.client.send(number) for number in NUMBERS))
    sent = [response.id for response in responses if isinstance(response, core.Accepted)]
    assert len(sent) == 30
    await soon(lambda: len(running.shard.webhook.queue) == 90)
    world.sink.respond = lambda post: 200
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 90)
    for message_id in sent:
        assert world.sink.statuses_of(message_id) == ["sent", "delivered", "read"]
    assert len({post.event_id for post in world.sink.posts}) == 90


async def test_without_persistence_callbacks_are_posted_and_not_stored(world: World) -> None:
    await world.configure(webhooks={"url": world.sink.url}, callback_persist=False)
    running = await running_with(world, 1)
    world.sink.respond = lambda post: 500
    message = (await running.client.send(NUMBERS[0])).id
    await world.sink.signals.until(lambda: len(world.sink.posts) >= 2)
    async with world.database.reading() as connection:
        assert await callbacks.count_pending(connection, 0) == 0
    world.sink.respond = lambda post: 200
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 1)
    assert world.sink.labels() == [(message, "sent")]


async def test_a_clock_that_is_ahead_after_a_restart_gives_no_callback_up(world: World) -> None:
    # The clock of the database is right.
    clock = ManualClock(time.time())
    running = await running_with(world, 1, clock=clock)
    world.sink.respond = lambda post: 500
    message = (await running.client.send(NUMBERS[0])).id
    queue = running.shard.webhook.queue
    for count in range(1, retry.MIN_ATTEMPTS + 1):
        await world.sink.signals.until(lambda count=count: len(world.sink.posts) == count)  # type: ignore[misc]
        await soon(lambda: queue.scheduled > 0)
        clock.advance(60)
        if count < retry.MIN_ATTEMPTS:
            queue.release_due()
    await running.stopped()
    clock.jump(30 * 86_400)
    queue = (await world.start(clock=clock, node="second")).shard.webhook.queue
    await world.sink.signals.until(lambda: len(world.sink.posts) == retry.MIN_ATTEMPTS + 1)
    await soon(lambda: queue.scheduled > 0)
    world.sink.respond = lambda post: 200
    clock.advance(60)
    queue.release_due()
    await world.sink.signals.until(lambda: world.sink.labels() == [(message, "sent")])
