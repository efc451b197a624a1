"""Messages of a number that sends through the Cloud API are posted once, in order and at the rate of the number."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.upstream.conftest import ANN, BEN, attach, count_jobs, post, send, status, until_no_jobs
from tests.coreapp.upstream.scripted_cloud import HOLD, ScriptedCloud
from tidings.storage.business import jobs, upstream_ids
from tidings.storage.business.jobs import JobForm
from tidings.wire import codes, core

pytestmark = pytest.mark.usefixtures("short_back_off")


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
