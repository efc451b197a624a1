"""Counters of a Coreapp: messages, statuses, calls and transactions, each once, under the On-Premises API's
names."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import REGISTRY

from coreapp.journal.change import Change
from coreapp.journal.journal import Journal
from tests.conftest import DatabaseFactory
from tests.coreapp import media_scene as scene
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.journal.test_journal import ACCOUNT, a_job, a_lease, a_message
from tests.coreapp.media import test_media_inbound
from tests.coreapp.signals import soon
from tidings.storage.business import contacts, sessions, shards
from tidings.wire import core
from tidings.wire import device as frames
from webapp.api.stats import known

NUMBER, OTHER = "15550110001", "15550110002"
TEXT = b'{"type":"text","text":{"body":"hi"}}'
NAMES = json.loads((Path(__file__).parents[1] / "data" / "api" / "stats_names.json").read_text())


class Counts:
    """Increments of the counters since this object was made."""

    def __init__(self) -> None:
        self._before = self._now()

    def of(self, name: str, **labels: str) -> float:
        key = (name, *sorted(labels.items()))
        return self._now().get(key, 0.0) - self._before.get(key, 0.0)

    @staticmethod
    def _now() -> Mapping[tuple[Any, ...], float]:
        samples = (sample for family in REGISTRY.collect() for sample in family.samples)
        return {(sample.name, *sorted(sample.labels.items())): sample.value for sample in samples}


async def test_messages_statuses_and_calls_are_counted_once_with_their_duration(world: World) -> None:
    world.add_phones(NUMBER)
    world.network.receipts = (frames.DELIVERED, frames.READ, frames.READ)
    counts = Counts()
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    for text in ("one", "two"):
        assert isinstance(await running.client.send(NUMBER, text), core.Accepted)
    assert isinstance(await running.client.send(OTHER), core.Refused)
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 6)
    await running.stopped()
    assert counts.of("out_message_persisted_total", type="text", number=BUSINESS) == 2
    assert {
        name: counts.of("out_message_status_total", status=name, number=BUSINESS)
        for name in ("sent", "delivered", "read")
    } == {
        "sent": 2,
        "delivered": 2,
        "read": 2,
    }
    assert counts.of("out_message_status_total", status="failed", number=BUSINESS) == 0
    assert counts.of("out_message_sent_duration_ms_count", type="text", number=BUSINESS) == 2
    assert counts.of("endpoint_requests_duration_ms_count", method="AcceptMessage", result="ok") == 2
    assert counts.of("endpoint_requests_duration_ms_count", method="AcceptMessage", result="1013") == 1
    assert counts.of("endpoint_requests_duration_ms_sum", method="AcceptMessage", result="ok") > 0
    assert counts.of("internal_server_requests_duration_ms_count", operation="login", result="ok") == 1
    assert counts.of("internal_server_requests_duration_ms_sum", operation="login", result="ok") > 0


async def test_an_inbound_message_is_pending_until_it_is_on_disk(world: World) -> None:
    (phone,) = world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    counts = Counts()
    async with world.database.transaction() as connection:
        # No commit passes the fence until this transaction ends.
        await shards.fence(connection, running.shard.context.lease)
        kind, body = phone.write(TEXT, world.network.business_bundle())
        world.network.deliver(NUMBER, kind, id="m1", body=body)
        world.network.deliver(NUMBER, frames.READ, id="r1", refs=["unknown"])
        # It stays 1 once the message is handled, until the commit.
        await soon(lambda: counts.of("in_messages_pending_processing", shard="0", number=BUSINESS) == 1)
    await world.network.signals.until(lambda: "m1" in world.network.acknowledged)
    assert counts.of("in_messages_pending_processing", shard="0", number=BUSINESS) == 0
    assert counts.of("in_message_persisted_total", type="text", number=BUSINESS) == 1


async def test_files_are_counted_by_type_and_result(world: World) -> None:
    running, phone = await test_media_inbound.begin(world)
    counts = Counts()
    # Labelled by the kind of file: one upload serves messages of several types.
    medium = await scene.upload(world)
    await scene.send_image(running, phone.number, medium.id)
    sent = world.network.blobs.put(b"a voice", "audio/ogg; codecs=opus")
    test_media_inbound.deliver(world, phone, "in-1", {"type": "voice", "voice": sent})
    await test_media_inbound.posted(world, "in-1")
    await world.network.signals.until(lambda: len(world.network.sends) > 1)
    assert counts.of("tidings_media_uploads_total", type="image", result="stored") == 1
    assert counts.of("tidings_media_downloads_total", type="voice", result="stored") == 1


async def test_a_commit_is_counted_under_its_subject(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    journal = Journal(
        database, await a_lease(database), last_seq=0, seal=lambda found: [callback.body for callback in found]
    )
    contact = contacts.StoredContact(ACCOUNT, NUMBER, registered=True, checked_at=1)
    session = sessions.SealedSession(ACCOUNT, NUMBER, b"whole", b"sending")
    for about, change in {
        "contacts": Change(ACCOUNT, checked_contacts=[contact]),
        "keys": Change(ACCOUNT, whole_sessions=[session]),
        "jobs": Change(ACCOUNT, enqueued_jobs=[a_job("1")]),
        "messages": Change(ACCOUNT, checked_contacts=[contact], new_messages=[a_message("1")]),
    }.items():
        counts = Counts()
        await journal.write(change)
        counted = {
            subject: counts.of("tidings_db_transaction_seconds_count", family="business", about=subject)
            for subject in ("messages", "contacts", "keys", "jobs")
        }
        assert counted == {**dict.fromkeys(counted, 0), about: 1}
    await journal.close()


async def test_a_failed_transaction_is_counted_separately(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    counts = Counts()
    with pytest.raises(sa.exc.DatabaseError):
        async with database.transaction(about="keys") as connection:
            await connection.execute(sa.text("SELECT nothing FROM nowhere"))
    # The caller gives up: this is no failure of the database.
    with contextlib.suppress(KeyError):
        async with database.transaction(about="keys"):
            raise KeyError
    labels = {"family": "business", "about": "keys"}
    assert counts.of("tidings_db_failed_transaction_seconds_count", **labels) == 1
    assert counts.of("tidings_db_failed_transaction_seconds_sum", **labels) > 0
    assert counts.of("tidings_db_transaction_seconds_count", **labels) == 0


async def test_a_coreapp_has_every_on_premises_metric_name(world: World) -> None:
    running = await world.start()
    found = known.read_coreapp((await running.client.call(core.GetMetrics)).text)
    types = {family.name: family.type for family in found}
    for entry in NAMES:
        name = entry["name"]
        base = name.removesuffix("_count").removesuffix("_sum")
        assert types.get(base) == (entry["type"] if base == name else "summary"), name
