"""A whole Coreapp whose number sends through a scripted Cloud API."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from coreapp.graph_api import pace
from harness import polling
from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, Running, World, make_settings
from tests.coreapp.scripted_network import ScriptedNetwork
from tests.coreapp.sink import Sink
from tests.coreapp.upstream.scripted_cloud import (
    APP_SECRET,
    CALLBACK_SECRET,
    CUT,
    PHONE_NUMBER_ID,
    TOKEN,
    VERIFY_TOKEN,
    WABA_ID,
    ScriptedCloud,
)
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.keys import upstream_credentials
from tidings.keys.upstream_credentials import UpstreamCredentials
from tidings.storage.business import jobs, numbers, upstream_ids, upstreams
from tidings.storage.business.upstreams import Upstream
from tidings.storage.database import Connection, Database
from tidings.wire import core

SAFE = SecretSealer(b"s" * 32)
ANN, BEN = "15550110001", "15550110002"


@pytest.fixture
def short_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back off by milliseconds instead of seconds."""
    monkeypatch.setattr(pace, "MAX_BACKOFF", 0.02)
    monkeypatch.setattr(pace, "RETRY_STOPPED_SECONDS", 0.05)


@pytest.fixture
async def cloud() -> AsyncIterator[ScriptedCloud]:
    cloud = ScriptedCloud()
    await cloud.start()
    yield cloud
    await cloud.stop()


async def attach(database: Database, url: str, *, token: str = TOKEN, rate: int = 1_000, changed_at: int = 1) -> None:
    """Send the business's messages through the Cloud API at this base URL."""
    credentials = UpstreamCredentials(token, APP_SECRET, CALLBACK_SECRET, VERIFY_TOKEN)
    sealed = upstream_credentials.sealed(SAFE, BUSINESS, credentials)
    upstream = Upstream(BUSINESS, url, PHONE_NUMBER_ID, WABA_ID, rate, "", changed_at)

    async def work(connection: Connection) -> None:
        await numbers.add_first(connection, BUSINESS)
        number = await numbers.find(connection, BUSINESS)
        assert number is not None
        await upstreams.attach(connection, number, upstream, sealed)

    await database.commit(work)


async def detach(database: Database) -> None:
    """Send the business's messages through the network."""

    async def work(connection: Connection) -> None:
        number = await numbers.find(connection, BUSINESS)
        assert number is not None
        await upstreams.detach(connection, number)

    await database.commit(work)


@pytest.fixture
async def upstream_world(
    database_factory: DatabaseFactory, tmp_path: Path, network: ScriptedNetwork, sink: Sink, cloud: ScriptedCloud
) -> AsyncIterator[World]:
    """World whose number sends through `cloud`, without the pair rate. Nothing runs yet."""
    database = await database_factory("business")
    settings = make_settings(tmp_path, database, network).model_copy(
        update={"cloud_pair_pacing": False, "cloud_unknown_wait": 0.2}
    )
    world = World(database, network, sink, settings)
    await world.configure(
        webhooks={"url": sink.url, "message": {"sent": True, "delivered": True, "read": True}},
        callback_backoff_delay_ms=10,
        max_callback_backoff_delay_ms=20,
    )
    await attach(database, cloud.url)
    yield world
    await world.close()


async def send(running: Running, to: str = ANN, text: str = "hello", **more: Any) -> str:
    """Send a text. Returns its id."""
    content = json.dumps({"type": "text", "text": {"body": text}}).encode()
    response = await running.client.call(lambda n: core.AcceptMessage(n, BUSINESS, to, "text", content, **more))
    assert isinstance(response, core.Accepted), response
    return response.id


async def send_with_unknown_outcome(world: World, cloud: ScriptedCloud) -> tuple[Running, str]:
    """Start a Coreapp and send a text whose response does not arrive. Returns the Coreapp and the text's id."""
    cloud.policy = lambda body: CUT
    running = await world.start(cloud_unknown_wait=60.0)
    message_id = await send(running)
    await cloud.signals.until(lambda: len(cloud.posts) == 1)
    return running, message_id


async def count_jobs(world: World) -> int:
    return await world.database.query(jobs.count)


async def until_no_jobs(world: World) -> None:
    """Wait until the job queue is empty on disk."""

    async def is_empty() -> bool:
        return await count_jobs(world) == 0

    await polling.until(is_empty, seconds=10.0, pause=0.01)


async def post(running: Running, *events: core.UpstreamEvent) -> Any:
    """Pass events to the Coreapp as a Webapp does. Returns its response."""
    return await running.client.call(lambda n: core.TakeUpstreamEvents(n, BUSINESS, list(events)))


@contextlib.contextmanager
def ids_refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the database refuse the rows of ids of the Cloud API."""

    async def refuse(connection: Connection, table: Any, rows: Any) -> None:
        raise pymysql.err.DataError(1406, "Data too long")

    with monkeypatch.context() as refusing:
        refusing.setattr(upstream_ids, "add_rows", refuse)
        yield


def status(message_id: str, name: str, *, peer: str = ANN, wamid: str = "wamid.1=", **more: Any) -> core.UpstreamEvent:
    """Return a status as the Cloud API posts it. An empty `message_id` leaves out our id."""
    body = {"id": wamid, "status": name, "timestamp": "1750030073", "recipient_id": peer, **more}
    if message_id:
        body["biz_opaque_callback_data"] = message_id
    return core.UpstreamEvent(core.STATUS_EVENT, json.dumps(body).encode(), peer)


def hidden_message(wamid: str, *, stand_in: str, user_id: str, **fields: Any) -> core.UpstreamEvent:
    """Return a message of a user without a visible number, as a Webapp passes it on."""
    content = fields or {"type": "text", "text": {"body": "hi"}}
    body = {"from_user_id": user_id, "id": wamid, "timestamp": "1749416383", **content}
    return core.UpstreamEvent(core.MESSAGE_EVENT, json.dumps(body).encode(), stand_in, "Ann", user_id)


def message(wamid: str, *, sender: str = ANN, name: str = "Ann", **fields: Any) -> core.UpstreamEvent:
    """Return a recipient's message as the Cloud API posts it."""
    content = fields or {"type": "text", "text": {"body": "hi"}}
    body = {"from": sender, "id": wamid, "timestamp": "1749416383", **content}
    return core.UpstreamEvent(core.MESSAGE_EVENT, json.dumps(body).encode(), sender, name)
