"""Contents that operators may see: the body of a callback, and a message until it is delivered."""

from __future__ import annotations

import json

import pytest

from tests.coreapp.conftest import LINK_KEY, Client, World
from tidings.storage.business import callbacks
from tidings.storage.business.callbacks import Callback
from tidings.wire import connection as wire
from tidings.wire import core

NUMBER = "15550110001"
BODY = b'{"statuses":[{"id":"gBEG1","status":"failed"}]}'


async def test_a_stored_body_is_opened_and_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.configure(webhooks={"url": ""})
    running = await world.start()
    row = Callback(77, 0, "15550000000", "gBEG1", "status_change", BODY, 1000)
    async with world.database.transaction() as connection:
        await callbacks.enqueue(connection, [row], running.shard.context.bodies.seal([row]))
    with caplog.at_level("INFO"):
        shown = await running.client.ask(lambda n: core.ShowCallback(n, 77, "ann (console)"))
    assert isinstance(shown, core.Shown)
    assert shown.content == BODY
    logged = [record.__dict__ for record in caplog.records if record.message == "content.shown"]
    assert [(entry["event_id"], entry["by"]) for entry in logged] == [("evt_4d", "ann (console)")]
    refused = await running.client.ask(lambda n: core.ShowCallback(n, 78, "ann (console)"))
    assert (refused.code, "not stored" in refused.details) == (1006, True)


async def test_a_message_is_opened_until_it_is_delivered(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    accepted = await running.client.send(NUMBER, "Guten Tag")
    shown = await running.client.ask(lambda n: core.ShowMessage(n, accepted.id, "ann (console)"))
    assert isinstance(shown, core.Shown), shown
    assert json.loads(shown.content)["text"]["body"] == "Guten Tag"
    refused = await running.client.ask(lambda n: core.ShowMessage(n, "gBEGnone", "ann (console)"))
    assert refused.code == 1006


async def test_contents_require_the_operator_key(world: World) -> None:
    running = await world.start()
    client = Client()
    await wire.connect(*running.server.sockets[0].getsockname()[:2], core.Answer, client)
    await client.ask(lambda n: core.Hello(n, LINK_KEY))
    for make in (lambda n: core.ShowCallback(n, 1, "eve@webapp"), lambda n: core.ShowMessage(n, "gBEG1", "eve@webapp")):
        refused = await client.ask(make)
        assert isinstance(refused, core.Refused)
        assert (refused.code, "only operators" in refused.details) == (1005, True)
