"""The Cloud API's response or a status decides whether a message is sent, has failed or is posted again."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from coreapp.graph_api import pace
from coreapp.journal.change import Change
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.signals import soon
from tests.coreapp.upstream.conftest import (
    ANN,
    BEN,
    count_jobs,
    post,
    send,
    send_with_unknown_outcome,
    status,
    until_no_jobs,
)
from tests.coreapp.upstream.scripted_cloud import CUT, HOLD, ScriptedCloud, refused
from tidings.storage.business import upstream_ids
from tidings.wire import codes, core

pytestmark = pytest.mark.usefixtures("short_back_off")


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
    running, message_id = await send_with_unknown_outcome(upstream_world, cloud)
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
