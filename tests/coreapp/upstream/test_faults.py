"""Messages wait while credentials, Cloud API or database fail, and are posted afterwards."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from coreapp.context import ShardStore
from coreapp.graph_api import pace
from coreapp.shard import shard
from coreapp.upstream import wiring
from coreapp.upstream.sender import UpstreamSender
from harness import polling
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.signals import soon
from tests.coreapp.upstream.conftest import ANN, BEN, attach, count_jobs, send, until_no_jobs
from tests.coreapp.upstream.scripted_cloud import CUT, HOLD, ScriptedCloud, refused
from tidings.storage.business import upstreams
from tidings.storage.business.upstreams import JobsPending
from tidings.wire import core

pytestmark = pytest.mark.usefixtures("short_back_off")


async def test_a_fault_of_the_credentials_stops_the_number_until_they_are_replaced(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "RETRY_STOPPED_SECONDS", 60.0)
    cloud.policy = lambda body: None if cloud.tokens[-1] == "NEW" else refused(190, "Invalid token", status=401)
    running = await upstream_world.start()
    for n in range(3):
        # v1 clients get no 401: messages are accepted, and wait.
        await send(running, f"1555011{n:04}")
    await soon(lambda: running.shard.is_stopped)
    health = await running.client.call(lambda n: core.GetHealth(n, BUSINESS))
    assert health.gateway_status == "disconnected"

    async def has_fault() -> bool:
        row = await upstream_world.database.query(lambda c: upstreams.find(c, BUSINESS))
        return row is not None and "(#190)" in row.fault

    await polling.until(has_fault, seconds=10.0, pause=0.01)
    assert await count_jobs(upstream_world) == 3
    posted = len(cloud.posts)
    assert posted <= 3

    await attach(upstream_world.database, cloud.url, token="NEW", changed_at=2)
    await until_no_jobs(upstream_world)
    assert len(cloud.posts) == posted + 3
    assert not running.shard.is_stopped
    assert upstream_world.sink.labels() == []


async def test_a_late_refusal_of_replaced_credentials_does_not_stop_the_number(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "RETRY_STOPPED_SECONDS", 60.0)
    responses = {ANN: HOLD}
    cloud.policy = lambda body: responses.pop(body["to"], None)
    cloud.held_response = refused(190, "Invalid token", status=401)
    running = await upstream_world.start()
    await send(running)
    await cloud.signals.until(lambda: len(cloud.posts) == 1)
    await attach(upstream_world.database, cloud.url, token="NEW", changed_at=2)

    def is_replaced() -> bool:
        access = running.shard.context.config.upstream
        return access is not None and access.token == "NEW"

    await soon(is_replaced)
    cloud.released.set()
    await until_no_jobs(upstream_world)
    await send(running, BEN)
    await until_no_jobs(upstream_world)
    assert [body["to"] for body in cloud.posts] == [ANN, ANN, BEN]
    assert not running.shard.is_stopped


async def test_a_fault_is_cleared_in_the_table_when_another_process_sends_again(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    async def fault() -> str:
        row = await upstream_world.database.query(lambda c: upstreams.find(c, BUSINESS))
        assert row is not None
        return row.fault

    async def has_fault() -> bool:
        return bool(await fault())

    async def has_none() -> bool:
        return not await fault()

    cloud.policy = lambda body: refused(10, "Permission denied", status=403)
    running = await upstream_world.start()
    await send(running)
    await polling.until(has_fault, seconds=10.0, pause=0.01)
    await running.stopped()
    # The permission was given since, without `tidings number upstream`.
    cloud.policy = lambda body: None
    await upstream_world.start(node="second")
    await until_no_jobs(upstream_world)
    await polling.until(has_none, seconds=10.0, pause=0.01)


async def test_the_fault_in_the_table_is_the_last_one_in_memory(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = asyncio.Event()
    begun = ended = 0
    persist = ShardStore.persist

    async def delayed(store: ShardStore, work: Any, **options: Any) -> Any:
        nonlocal begun, ended
        if "fault" not in work.__qualname__:
            return await persist(store, work, **options)
        begun += 1
        if begun == 1:
            await may_write.wait()
        result = await persist(store, work, **options)
        ended += 1
        return result

    monkeypatch.setattr(ShardStore, "persist", delayed)
    cloud.policy = lambda body: refused(190, "Invalid token", status=401)
    running = await upstream_world.start()
    await send(running)
    await soon(lambda: begun == 1)
    cloud.policy = lambda body: None
    await until_no_jobs(upstream_world)
    assert not running.shard.is_stopped
    may_write.set()
    await soon(lambda: ended == 2)
    row = await upstream_world.database.query(lambda c: upstreams.find(c, BUSINESS))
    assert row is not None
    assert row.fault == ""


async def test_messages_wait_while_the_cloud_api_cannot_be_reached(
    upstream_world: World, cloud: ScriptedCloud, refusing_port: int
) -> None:
    await attach(upstream_world.database, f"http://127.0.0.1:{refusing_port}/v25.0", changed_at=2)
    running = await upstream_world.start()
    message_id = await send(running)
    await soon(lambda: running.node.numbers.first.process.upstream.pace.in_flight == 1)

    async def correct() -> bool:
        try:
            await attach(upstream_world.database, cloud.url, changed_at=3)
        except JobsPending:
            # During an attempt.
            return False
        return True

    await polling.until(correct, seconds=10.0, pause=0.01)
    await until_no_jobs(upstream_world)
    assert [body["biz_opaque_callback_data"] for body in cloud.posts] == [message_id]


async def test_an_opening_that_fails_half_way_leaves_no_sender_behind(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.policy = lambda body: HOLD
    running = await upstream_world.start(cloud_concurrency=1)
    await send(running, ANN, "begun")
    await cloud.signals.until(lambda: len(cloud.posts) == 1)
    waiting = await send(running, BEN, "waiting")
    await running.killed()
    cloud.policy = lambda body: None
    make, failures = wiring.make_inbox, [ConnectionError("the database is unreachable")]

    def fail_once(*args: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return make(*args, **named)

    closed, close = list[UpstreamSender](), UpstreamSender.close

    async def close_and_record(self: UpstreamSender) -> None:
        closed.append(self)
        await close(self)

    monkeypatch.setattr(shard, "make_inbox", fail_once)
    monkeypatch.setattr(UpstreamSender, "close", close_and_record)
    # On a busy machine the outcome of a post of the first opening may be unknown: the next message waits until then.
    running = await upstream_world.start(node="second", cloud_unknown_wait=5.0)
    assert (failures, len(closed)) == ([], 1)
    await cloud.signals.until(lambda: len(cloud.to(BEN)) == 1)
    later = await send(running, BEN, "later")
    await cloud.signals.until(lambda: len(cloud.to(BEN)) == 2)
    assert [body["biz_opaque_callback_data"] for body in cloud.to(BEN)] == [waiting, later]


async def test_an_error_at_the_end_of_a_wait_reopens_the_shard(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses = itertools.chain([CUT], itertools.repeat(HOLD))
    cloud.policy = lambda body: next(responses)
    running = await upstream_world.start()
    first = running.shard
    failures = [ConnectionError("the database is unreachable")]
    fail = first.sending.transmitter.fail

    def fail_once(*args: Any) -> None:
        if failures:
            raise failures.pop()
        fail(*args)

    monkeypatch.setattr(first.sending.transmitter, "fail", fail_once)
    message_id = await send(running)
    await upstream_world.sink.signals.until(lambda: upstream_world.sink.statuses_of(message_id) == ["failed"])
    assert failures == []
    assert running.shard is not first
