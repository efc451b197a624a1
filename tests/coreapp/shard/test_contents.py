"""Contents that operators may see: a message until it is delivered."""

from __future__ import annotations

import json
import time

import pytest

from tests.coreapp.conftest import BUSINESS, LINK_KEY, Client, World
from tidings.storage.business import audit_entries
from tidings.wire import connection as wire
from tidings.wire import core

NUMBER = "15550110001"


async def test_a_message_is_opened_until_it_is_delivered(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    accepted = await running.client.send(NUMBER, "Guten Tag")
    with caplog.at_level("INFO"):
        shown = await running.client.call(lambda n: core.ShowMessage(n, accepted.id, "ann (console)"))
    assert isinstance(shown, core.Shown), shown
    assert json.loads(shown.content)["text"]["body"] == "Guten Tag"
    logged = [record.__dict__ for record in caplog.records if record.message == "content.shown"]
    assert [(entry["id"], entry["by"]) for entry in logged] == [(accepted.id, "ann (console)")]
    refused = await running.client.call(lambda n: core.ShowMessage(n, "gBEGnone", "ann (console)"))
    assert refused.code == 1006
    async with world.database.reading() as connection:
        entries = await audit_entries.list_latest(connection, BUSINESS, limit=9)
    assert [(entry.action, entry.subject, entry.by) for entry in entries] == [
        ("show_message", accepted.id, "ann (console)")
    ]
    assert abs(entries[0].at / 1000 - time.time()) < 600


async def test_contents_require_the_operator_key(world: World) -> None:
    running = await world.start()
    client = Client()
    await wire.connect(*running.server.sockets[0].getsockname()[:2], core.Response, client)
    await client.call(lambda n: core.Hello(n, LINK_KEY))
    refused = await client.call(lambda n: core.ShowMessage(n, "gBEG1", "eve@webapp"))
    assert isinstance(refused, core.Refused)
    assert (refused.code, "only operators" in refused.details) == (1005, True)
