"""Messages of a number that sends through the Cloud API: each is posted once, in order, whatever the Cloud API does."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from coreapp.context import ShardStore
from coreapp.graph_api import pace
from coreapp.journal.change import Change
from coreapp.shard import shard
from coreapp.upstream import wiring
from coreapp.upstream.sender import UpstreamSender
from harness import polling
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.signals import soon
from tests.coreapp.upstream.conftest import attach, detach, post, status, until_no_jobs
from tests.coreapp.upstream.scripted_cloud import CUT, HOLD, ScriptedCloud, refused
from tidings.storage.business import jobs, upstream_ids, upstreams
from tidings.storage.business.jobs import JobForm
from tidings.storage.business.upstreams import JobsPending
from tidings.wire import codes, core

ANN, BEN = "15550110001", "15550110002"


@pytest.fixture(autouse=True)
def short_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back off by milliseconds instead of seconds."""
    monkeypatch.setattr(pace, "MAX_BACKOFF", 0.02)
    monkeypatch.setattr(pace, "RETRY_STOPPED_SECONDS", 0.05)


async def send(running: Running, to: str = ANN, text: str = "hello", **more: Any) -> str:
    """Send a text. Returns its id."""
    content = json.dumps({"type": "text", "text": {"body": text}}).encode()
    response = await running.client.call(lambda n: core.AcceptMessage(n, BUSINESS, to, "text", content, **more))
    assert isinstance(response, core.Accepted), response
    return response.id


async def count_jobs(world: World) -> int:
    return await world.database.query(jobs.count)


async def test_a_message_is_posted_with_our_id_and_its_statuses_reach_the_webhook(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    running = await upstream_world.start()
    message_id = await send(running)
    await cloud.signals.until(lambda: len(cloud.posts) == 1)
    assert cloud.posts == [
        {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": ANN,
            "type": "text",
            "text": {"body": "hello"},
            "biz_opaque_callback_data": message_id,
        }
    ]
    assert cloud.tokens == ["T0KEN"]
    await until_no_jobs(upstream_world)
    (row,) = await upstream_world.database.query(lambda c: upstream_ids.list_by_id(c, BUSINESS, [message_id]))
    assert row.wamid == "wamid.1="
    # The network has no part in it.
    assert (upstream_world.network.logins, upstream_world.network.registrations) == (0, [])

    for name in ("sent", "delivered", "read"):
        assert isinstance(await post(running, status(message_id, name)), core.Done)
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 3)
    assert upstream_world.sink.statuses_of(message_id) == ["sent", "delivered", "read"]


async def test_messages_to_one_recipient_keep_their_order_and_others_do_not_wait(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    cloud.policy = lambda body: HOLD if body["to"] == ANN and not cloud.released.is_set() else None
    running = await upstream_world.start()
    for text in ("1", "2", "3"):
        await send(running, ANN, text)
    for text in ("1", "2", "3"):
        await send(running, BEN, text)
    await cloud.signals.until(lambda: len(cloud.to(BEN)) == 3)
    assert [body["text"]["body"] for body in cloud.to(ANN)] == ["1"]
    cloud.released.set()
    await cloud.signals.until(lambda: len(cloud.to(ANN)) == 3)
    assert [body["text"]["body"] for body in cloud.to(ANN)] == ["1", "2", "3"]
    assert [body["text"]["body"] for body in cloud.to(BEN)] == ["1", "2", "3"]


async def test_at_most_the_configured_number_of_posts_is_in_flight(upstream_world: World, cloud: ScriptedCloud) -> None:
    cloud.policy = lambda body: HOLD
    running = await upstream_world.start(cloud_concurrency=4)
    for n in range(12):
        await send(running, f"1555011{n:04}")
    await cloud.signals.until(lambda: cloud.in_flight == 4)
    assert len(cloud.posts) == 4
    cloud.released.set()
    await until_no_jobs(upstream_world)
    assert cloud.most_in_flight == 4
    assert len({body["to"] for body in cloud.posts}) == len(cloud.posts) == 12


@pytest.mark.parametrize("code", [130429, 131016, 4, 131056])
async def test_a_message_that_is_refused_for_now_is_posted_again_without_a_status(
    upstream_world: World, cloud: ScriptedCloud, code: int
) -> None:
    responses = itertools.chain([refused(code), refused(code, status=429)], itertools.repeat(None))
    cloud.policy = lambda body: next(responses)
    running = await upstream_world.start()
    message_id = await send(running)
    await until_no_jobs(upstream_world)
    assert [body["biz_opaque_callback_data"] for body in cloud.posts] == [message_id] * 3
    assert upstream_world.sink.labels() == []


@pytest.mark.parametrize(
    ("response", "code", "details"),
    [
        (refused(131009, error_data={"details": "why"}), 1009, "why"),
        (
            refused(132001, status=404, error_data={"details": "template name (x) does not exist in en"}),
            2001,
            "exist in en",
        ),
        (refused(131047), 470, "(#131047) Title"),
        (refused(131049, error_data={"details": "healthy"}), 500, "(#131049) Title: healthy"),
    ],
)
async def test_a_refused_message_fails_with_the_code_of_v1(
    upstream_world: World, cloud: ScriptedCloud, response: Any, code: int, details: str
) -> None:
    cloud.policy = lambda body: response
    running = await upstream_world.start()
    message_id = await send(running)
    await upstream_world.sink.signals.until(lambda: upstream_world.sink.statuses_of(message_id) == ["failed"])
    (posted,) = upstream_world.sink.taken()
    (error,) = posted.body["statuses"][0]["errors"]
    assert error["code"] == code
    assert details in error["details"]
    assert len(cloud.posts) == 1
    await until_no_jobs(upstream_world)


@pytest.mark.parametrize("response", [CUT, (500, "<html>"), (200, "{}"), refused(131000, status=500)])
async def test_an_unknown_outcome_fails_after_the_wait_and_is_never_posted_twice(
    upstream_world: World, cloud: ScriptedCloud, response: Any
) -> None:
    cloud.policy = lambda body: response
    running = await upstream_world.start()
    message_id = await send(running)
    await upstream_world.sink.signals.until(lambda: upstream_world.sink.statuses_of(message_id) == ["failed"])
    (error,) = upstream_world.sink.taken()[0].body["statuses"][0]["errors"]
    assert error["code"] == 500
    assert error["details"].startswith("may have been sent")
    assert len(cloud.posts) == 1


async def test_an_unknown_outcome_is_settled_by_a_status_with_our_id(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    cloud.policy = lambda body: CUT
    running = await upstream_world.start(cloud_unknown_wait=60.0)
    message_id = await send(running)
    await cloud.signals.until(lambda: len(cloud.posts) == 1)
    await soon(lambda: running.shard.sending.encryption.waiting == 1)
    await post(running, status(message_id, "delivered"))
    await upstream_world.sink.signals.until(
        lambda: upstream_world.sink.statuses_of(message_id) == ["sent", "delivered"]
    )
    assert await count_jobs(upstream_world) == 0
    (row,) = await upstream_world.database.query(lambda c: upstream_ids.list_by_id(c, BUSINESS, [message_id]))
    assert row.wamid == "wamid.1="


async def test_an_unknown_outcome_is_posted_again_where_the_operator_wants_no_loss(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    responses = itertools.chain([CUT], itertools.repeat(None))
    cloud.policy = lambda body: next(responses)
    running = await upstream_world.start(cloud_resends_unknown=True)
    message_id = await send(running)
    await until_no_jobs(upstream_world)
    assert [body["biz_opaque_callback_data"] for body in cloud.posts] == [message_id] * 2


async def test_a_status_may_overtake_the_response(upstream_world: World, cloud: ScriptedCloud) -> None:
    cloud.policy = lambda body: HOLD
    running = await upstream_world.start()
    message_id = await send(running)
    await cloud.signals.until(lambda: len(cloud.posts) == 1)
    await post(running, status(message_id, "delivered"))
    await upstream_world.sink.signals.until(
        lambda: upstream_world.sink.statuses_of(message_id) == ["sent", "delivered"]
    )
    assert await count_jobs(upstream_world) == 0
    cloud.released.set()
    later = await send(running, text="next")
    await cloud.signals.until(lambda: len(cloud.posts) == 2)
    await until_no_jobs(upstream_world)
    assert [body["biz_opaque_callback_data"] for body in cloud.posts] == [message_id, later]
    assert upstream_world.sink.statuses_of(message_id) == ["sent", "delivered"]


async def test_a_status_settles_a_message_that_waits_to_be_posted_again(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "MAX_BACKOFF", 60.0)
    monkeypatch.setattr(pace, "BACKOFF_BASE", 60.0)
    responses = itertools.chain([refused(131056)] * 2, itertools.repeat(None))
    cloud.policy = lambda body: next(responses)
    running = await upstream_world.start()
    message_id = await send(running)
    await cloud.signals.until(lambda: len(cloud.posts) == 2)
    await soon(lambda: running.node.numbers.first.process.upstream.pace.in_flight == 0)
    await post(running, status(message_id, "delivered"))
    await upstream_world.sink.signals.until(
        lambda: upstream_world.sink.statuses_of(message_id) == ["sent", "delivered"]
    )
    assert await count_jobs(upstream_world) == 0
    assert running.shard.sending.encryption.waiting == 0


async def test_a_message_that_a_status_settles_before_its_post_is_not_posted(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await upstream_world.start()
    journal = running.shard.context.journal
    write, written, released = journal.write, asyncio.Event(), asyncio.Event()

    async def hold(change: Change) -> None:
        await write(change)
        if any(job.peer == ANN for job in change.enqueued_jobs):
            written.set()
            await released.wait()

    monkeypatch.setattr(journal, "write", hold)
    message_id = await send(running)
    await written.wait()
    await post(running, status(message_id, "delivered"))
    released.set()
    await soon(lambda: running.node.numbers.first.process.upstream.pace.in_flight == 0)
    await send(running, BEN)
    await cloud.signals.until(lambda: len(cloud.to(BEN)) == 1)
    assert cloud.to(ANN) == []
    await until_no_jobs(upstream_world)


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


async def test_the_next_owner_posts_waiting_messages_and_leaves_a_begun_post_open(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    cloud.policy = lambda body: HOLD
    running = await upstream_world.start(cloud_concurrency=1)
    begun = await send(running, ANN, "begun")
    await cloud.signals.until(lambda: len(cloud.posts) == 1)
    waiting = [await send(running, BEN, "waiting"), await send(running, ANN, "behind")]
    await running.killed()
    rows = await upstream_world.database.query(lambda c: jobs.list_jobs(c, 0))
    assert {row.id: row.state for row in rows} == {
        begun: JobForm.POSTED,
        **dict.fromkeys(waiting, JobForm.NEW),
    }
    cloud.policy = lambda body: None
    await upstream_world.start(node="second")
    await until_no_jobs(upstream_world)
    await upstream_world.sink.signals.until(lambda: upstream_world.sink.labels() == [(begun, "failed")])
    posted = [body["biz_opaque_callback_data"] for body in cloud.posts]
    assert sorted(posted) == sorted([begun, *waiting])


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
    make, failures = wiring.make_inbox, [ConnectionError("the database is away")]

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


async def test_messages_are_posted_at_the_rate_of_the_number(upstream_world: World, cloud: ScriptedCloud) -> None:
    await attach(upstream_world.database, cloud.url, rate=20, changed_at=2)
    running = await upstream_world.start()
    started = asyncio.get_running_loop().time()
    for n in range(12):
        await send(running, f"1555011{n:04}")
    await cloud.signals.until(lambda: len(cloud.posts) == 12)
    # Two at once, then one every 50 ms.
    assert asyncio.get_running_loop().time() - started >= 0.45


async def test_the_pair_rate_delays_one_recipient_only(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await upstream_world.start(cloud_pair_pacing=True)
    for n in range(47):
        await send(running, ANN, str(n))
    await send(running, BEN, "other")
    await cloud.signals.until(lambda: len(cloud.to(BEN)) == 1)
    await cloud.signals.until(lambda: len(cloud.to(ANN)) == 45)
    assert await count_jobs(upstream_world) >= 2


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"recipient_type": "group", "to": "15550000000-1400000000"}, codes.INVALID_RECIPIENT_TYPE),
        ({"ttl": 60}, codes.PARAMETER_NOT_REQUIRED),
        ({"identity_hash": "x"}, codes.PARAMETER_NOT_REQUIRED),
        ({"to": BUSINESS}, codes.BAD_USER),
    ],
)
async def test_calls_without_a_counterpart_in_the_cloud_api_are_refused_with_a_reason(
    upstream_world: World, cloud: ScriptedCloud, changes: dict[str, Any], code: int
) -> None:
    running = await upstream_world.start()
    fields = {"to": ANN, "kind": "text", "content": b'{"type":"text","text":{"body":"x"}}', **changes}
    response = await running.client.call(lambda n: core.AcceptMessage(n=n, account=BUSINESS, **fields))
    assert isinstance(response, core.Refused), response
    assert response.code == code
    assert response.details
    assert cloud.posts == []


async def test_groups_registration_and_backups_are_refused(upstream_world: World) -> None:
    running = await upstream_world.start()
    for make in (
        lambda n: core.CreateGroup(n, BUSINESS, "g"),
        lambda n: core.RequestCode(n, BUSINESS),
        lambda n: core.RestoreKeys(n, BUSINESS, "p", "d"),
    ):
        response = await running.client.call(make)
        assert isinstance(response, core.Refused), response
        assert response.code == codes.ACCESS_DENIED


async def test_every_number_is_a_contact_until_a_status_finds_it_undeliverable(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    running = await upstream_world.start()
    (contact,) = await running.client.check("+1 555 011 0001")
    assert (contact.status, contact.wa_id) == ("valid", ANN)
    message_id = await send(running)
    error = {"code": 131026, "title": "Message undeliverable", "error_data": {"details": "d"}}
    await post(running, status(message_id, "failed", errors=[error]))
    (contact,) = await running.client.check("+1 555 011 0001")
    assert contact.status == "invalid"
    content = b'{"type":"text","text":{"body":"x"}}'
    response = await running.client.call(lambda n: core.AcceptMessage(n, BUSINESS, ANN, "text", content))
    assert isinstance(response, core.Refused)
    assert response.code == codes.INVALID_USER


async def test_switching_is_refused_while_messages_are_unsent(upstream_world: World, cloud: ScriptedCloud) -> None:
    cloud.policy = lambda body: HOLD
    running = await upstream_world.start()
    await send(running)
    await cloud.signals.until(lambda: len(cloud.posts) == 1)
    with pytest.raises(JobsPending):
        await detach(upstream_world.database)
    cloud.released.set()
    await until_no_jobs(upstream_world)
    await detach(upstream_world.database)


async def test_another_url_is_refused_while_it_is_unknown_whether_a_message_was_sent(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    cloud.policy = lambda body: CUT
    running = await upstream_world.start(cloud_unknown_wait=60.0)
    message_id = await send(running)
    await cloud.signals.until(lambda: len(cloud.posts) == 1)
    with pytest.raises(JobsPending):
        await attach(upstream_world.database, "http://127.0.0.1:1/v25.0", changed_at=2)
    await attach(upstream_world.database, cloud.url, token="NEW", changed_at=3)
    await post(running, status(message_id, "sent"))
    await until_no_jobs(upstream_world)
    await attach(upstream_world.database, f"{cloud.url}/", changed_at=4)


async def test_an_error_at_the_end_of_a_wait_reopens_the_shard(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses = itertools.chain([CUT], itertools.repeat(HOLD))
    cloud.policy = lambda body: next(responses)
    running = await upstream_world.start()
    first = running.shard
    failures = [ConnectionError("the database is away")]
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


async def test_a_number_switched_to_the_network_sends_there_and_back_again(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    upstream_world.add_phones(ANN)
    running = await upstream_world.start()
    await send(running, text="through the cloud")
    await until_no_jobs(upstream_world)
    await detach(upstream_world.database)
    await upstream_world.network.signals.until(lambda: upstream_world.network.live is not None)
    await upstream_world.owner(running)
    await send(running, text="through the network", checked_late=True)
    await upstream_world.network.signals.until(lambda: len(upstream_world.network.sends) == 1)
    await until_no_jobs(upstream_world)
    assert len(upstream_world.network.registrations) == 1

    await attach(upstream_world.database, cloud.url, changed_at=3)
    await soon(lambda: running.node.shards.first is not None and running.shard.upstream is not None)
    await send(running, text="through the cloud again")
    await cloud.signals.until(lambda: len(cloud.posts) == 2)
    assert len(upstream_world.network.sends) == 1


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
