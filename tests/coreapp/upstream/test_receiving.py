"""Events that the Cloud API posts reach the webhook of v1 once, with our ids, and in order."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from coreapp.upstream import inbound_ids, link
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.upstream.conftest import ANN, BEN, ids_refused, message, post, status, until_no_jobs
from tests.coreapp.upstream.scripted_cloud import HOLD, ScriptedCloud
from tidings.storage.business import upstream_ids
from tidings.storage.business.upstream_ids import UpstreamId
from tidings.storage.database import Connection
from tidings.wire import codes, core


async def send(running: Running, content: str = '{"type":"text","text":{"body":"x"}}', kind: str = "text") -> str:
    response = await running.client.call(lambda n: core.AcceptMessage(n, BUSINESS, ANN, kind, content.encode()))
    assert isinstance(response, core.Accepted), response
    return response.id


async def sent(world: World, running: Running) -> str:
    """Send a message and wait until the Cloud API has it. Returns its id."""
    message_id = await send(running)
    await until_no_jobs(world)
    return message_id


async def test_a_message_of_a_recipient_is_posted_once_however_often_it_arrives(upstream_world: World) -> None:
    running = await upstream_world.start()
    own = inbound_ids.derive(BUSINESS, "wamid.IN=")
    responses = await asyncio.gather(*(post(running, message("wamid.IN=")) for _ in range(5)))
    assert all(isinstance(response, core.Done) for response in responses)
    await running.stopped()
    again = await upstream_world.start(node="second")
    assert isinstance(await post(again, message("wamid.IN=")), core.Done)
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 1)
    (posted,) = upstream_world.sink.taken()
    assert posted.body == {
        "contacts": [{"profile": {"name": "Ann"}, "wa_id": ANN}],
        "messages": [{"from": ANN, "id": own, "timestamp": "1749416383", "type": "text", "text": {"body": "hi"}}],
    }


async def test_a_repeated_event_is_not_acknowledged_when_the_database_refuses_the_first_one(
    upstream_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await upstream_world.start()
    with ids_refused(monkeypatch):
        responses = await asyncio.gather(*(post(running, message("wamid.IN=")) for _ in range(5)))
    assert [type(response) for response in responses] == [core.Refused] * 5


async def test_statuses_are_reported_in_order_and_once(upstream_world: World) -> None:
    running = await upstream_world.start()
    message_id = await sent(upstream_world, running)
    for name in ("delivered", "sent", "delivered", "read", "delivered", "played"):
        assert isinstance(await post(running, status(message_id, name)), core.Done)
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 3)
    assert upstream_world.sink.statuses_of(message_id) == ["sent", "delivered", "read"]


async def test_a_status_without_our_id_is_found_by_the_wamid(upstream_world: World) -> None:
    running = await upstream_world.start()
    message_id = await sent(upstream_world, running)
    await post(running, status("", "read"))
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 3)
    assert upstream_world.sink.statuses_of(message_id) == ["sent", "delivered", "read"]


async def test_a_status_of_an_unknown_message_is_acknowledged_and_dropped(upstream_world: World) -> None:
    running = await upstream_world.start()
    assert isinstance(await post(running, status("", "read", wamid="wamid.OLD=")), core.Done)
    assert isinstance(await post(running, status("gBEGnobody", "read", wamid="wamid.OLD=")), core.Done)
    assert isinstance(await post(running, message("wamid.IN=")), core.Done)
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 1)
    # A recipient's message has no statuses, whatever a post claims.
    own = inbound_ids.derive(BUSINESS, "wamid.IN=")
    assert isinstance(await post(running, status(own, "read")), core.Done)
    assert [label for label in upstream_world.sink.labels() if label[1] != "received"] == []


async def test_conversation_and_pricing_are_those_of_the_cloud_api(upstream_world: World) -> None:
    running = await upstream_world.start()
    message_id = await sent(upstream_world, running)
    pricing = {"billable": False, "pricing_model": "PMP", "type": "free_customer_service", "category": "service"}
    conversation = {"id": "c1", "expiration_timestamp": "1750116480", "origin": {"type": "service"}}
    await post(running, status(message_id, "sent", pricing=pricing, conversation=conversation))
    await post(running, status(message_id, "delivered"))
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 2)
    first, second = (posted.body["statuses"][0] for posted in upstream_world.sink.taken())
    assert first["conversation"] == {"id": "c1", "expiration_timestamp": 1750116480, "origin": {"type": "service"}}
    assert first["pricing"] == {**pricing, "pricing_model": "CBP"}
    assert "pricing" not in second
    assert "conversation" not in second


async def test_ids_are_translated_in_both_directions(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await upstream_world.start()
    message_id = await sent(upstream_world, running)
    await post(
        running,
        message("wamid.IN=", type="text", text={"body": "re"}, context={"from": BUSINESS, "id": "wamid.1="}),
        message("wamid.LIKE=", type="reaction", reaction={"message_id": "wamid.1=", "emoji": "\u2764"}),
    )
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 2)
    reply, reaction = (posted.body["messages"][0] for posted in upstream_world.sink.taken())
    assert reply["context"] == {"id": message_id, "from": BUSINESS}
    assert reaction["reaction"] == {"message_id": message_id, "emoji": "\u2764"}
    # The other way: a reply to the recipient's message, a reaction to it, and a read mark.
    own = reply["id"]
    await send(running, json.dumps({"type": "text", "text": {"body": "x"}, "context": {"id": own}}))
    await send(running, json.dumps({"type": "reaction", "reaction": {"message_id": own, "emoji": "x"}}), "reaction")
    await cloud.signals.until(lambda: len(cloud.posts) == 3)
    assert cloud.posts[1]["context"] == {"message_id": "wamid.IN="}
    assert cloud.posts[2]["reaction"] == {"message_id": "wamid.IN=", "emoji": "x"}
    response = await running.client.call(lambda n: core.MarkRead(n, BUSINESS, own, sender=ANN))
    assert isinstance(response, core.Done)
    await cloud.signals.until(lambda: len(cloud.marks) == 1)
    assert cloud.marks == [{"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.IN="}]


async def test_an_event_that_overtakes_the_response_to_a_post_names_our_message(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    cloud.policy = lambda body: HOLD
    running = await upstream_world.start()
    message_id = await send(running)
    await cloud.signals.until(lambda: len(cloud.posts) == 1)
    names_it: dict[str, Any] = {"message_id": "wamid.1=", "emoji": "\u2764"}
    early = asyncio.ensure_future(post(running, message("wamid.LIKE=", type="reaction", reaction=names_it)))
    # The response to this event, which names nothing, shows that the one before it has reached the inbox.
    assert isinstance(await post(running, message("wamid.BEN=", sender=BEN)), core.Done)
    cloud.released.set()
    assert isinstance(await early, core.Done)
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 2)
    (reaction,) = (
        found for posted in upstream_world.sink.taken() for found in posted.body["messages"] if "reaction" in found
    )
    assert reaction["reaction"] == {"message_id": message_id, "emoji": "\u2764"}


async def test_a_read_mark_that_the_database_delays_is_posted_later_and_does_not_delay_others(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "AT_ONCE", 1)
    running = await upstream_world.start()
    await post(running, message("wamid.1="), message("wamid.2=", sender=BEN))
    first, second = (inbound_ids.derive(BUSINESS, wamid) for wamid in ("wamid.1=", "wamid.2="))
    find, failed = upstream_ids.list_by_id, asyncio.Event()

    async def fail_once(connection: Connection, account: str, ids: Sequence[str]) -> Sequence[UpstreamId]:
        if first in ids and not failed.is_set():
            failed.set()
            raise OSError("the database is unreachable")
        return await find(connection, account, ids)

    monkeypatch.setattr(upstream_ids, "list_by_id", fail_once)
    for own, sender in ((first, ANN), (second, BEN)):
        response = await running.client.call(functools.partial(core.MarkRead, account=BUSINESS, id=own, sender=sender))
        assert isinstance(response, core.Done)
        await failed.wait()
    await cloud.signals.until(lambda: len(cloud.marks) == 2)
    assert [mark["message_id"] for mark in cloud.marks] == ["wamid.2=", "wamid.1="]


async def test_events_that_v1_does_not_have_are_acknowledged_and_dropped(upstream_world: World) -> None:
    running = await upstream_world.start()
    response = await post(
        running,
        core.UpstreamEvent(core.MESSAGE_EVENT, b"{", ANN),
        core.UpstreamEvent(core.STATUS_EVENT, b"[]", ANN),
        core.UpstreamEvent(core.ERROR_EVENT, b"5"),
        message("wamid.EDIT=", type="edit", edit={}),
        message("wamid.IN="),
    )
    assert isinstance(response, core.Done)
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 1)
    assert upstream_world.sink.labels() == [(inbound_ids.derive(BUSINESS, "wamid.IN="), "received")]


async def test_an_error_of_the_account_reaches_the_webhook(upstream_world: World) -> None:
    running = await upstream_world.start()
    error = {"code": 131031, "title": "Locked", "message": "Locked", "error_data": {"details": "why"}}
    await post(running, core.UpstreamEvent(core.ERROR_EVENT, json.dumps(error).encode()))
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.posts) == 1)
    (shown,) = upstream_world.sink.posts[0].body["errors"]
    assert (shown["code"], shown["details"]) == (1031, "why")


async def test_a_thousand_events_in_one_post_are_all_reported(upstream_world: World) -> None:
    running = await upstream_world.start(callback_queue_limit=5_000)
    events = [message(f"wamid.{n}=", sender=f"1555011{n % 50:04}") for n in range(1_000)]
    assert isinstance(await post(running, *events), core.Done)
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 1_000)
    assert len({label[0] for label in upstream_world.sink.labels()}) == 1_000


async def test_a_coreapp_whose_number_uses_the_network_takes_no_events(world: World) -> None:
    running = await world.start()
    response = await post(running, message("wamid.IN="))
    assert isinstance(response, core.Refused)
    assert response.code == codes.NOT_PRIMARY_COREAPP


async def test_ids_are_deleted_after_31_days(upstream_world: World) -> None:
    day = 24 * 3600 * 1000
    rows = [upstream_ids.UpstreamId(BUSINESS, f"m{n}", f"wamid.{n}", n * day) for n in range(4)]
    await upstream_world.database.commit(lambda connection: upstream_ids.add(connection, rows))
    deleted = await upstream_world.database.commit(lambda c: upstream_ids.delete_before(c, 2 * day, 100))
    assert deleted == 2
    left = await upstream_world.database.query(
        lambda c: upstream_ids.list_by_id(c, BUSINESS, [f"m{n}" for n in range(4)])
    )
    assert {row.id for row in left} == {"m2", "m3"}
    assert 31 * day == upstream_ids.LIFETIME_MS
