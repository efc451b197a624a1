"""Messages that the operator deletes from the job queue: never sent, reported as failed, and others are not
delayed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa

from coreapp.accepting.purge import WHY
from tests.conftest import DatabaseFactory
from tests.coreapp import media_scene
from tests.coreapp.conftest import Running, World
from tests.coreapp.group_scene import ANN, Scene, group_scene
from tests.coreapp.phones import Phone
from tests.coreapp.scripted_network import HOLD
from tests.coreapp.signals import soon
from tidings.storage.business import callback_purges, jobs
from tidings.storage.business.queue_views import ENCRYPTED, NEW
from tidings.storage.database import Connection, Database, insert_or_update
from tidings.wire import codes, core
from tidings.wire import device as frames

NUMBER, OTHER = "15550110001", "15550110002"


async def begin(world: World) -> tuple[Running, list[Phone]]:
    """Start a Coreapp that has a session with `NUMBER` and has to open one with `OTHER`."""
    phones = world.add_phones(NUMBER, OTHER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER, OTHER)
    await running.client.send(NUMBER, "the first")
    await world.network.signals.until(lambda: len(world.network.sends) == 1)
    await world.until_jobs(0)
    return running, phones


async def purge(running: Running, ids: Sequence[str], *statuses: str) -> tuple[int, int]:
    response = await running.client.call(lambda n: core.PurgeJobs(n, list(ids), "ann@desk", "all", 0, list(statuses)))
    assert isinstance(response, core.Purged), response
    return response.count, response.changed


def texts(phone: Phone, sends: Sequence[frames.Send]) -> list[Any]:
    contents = [phone.read(send.kind, send.body) for send in sends if send.to == phone.number]
    return [content["text"]["body"] for content in contents]  # type: ignore[index]


async def test_purged_messages_fail_unsent_and_later_messages_are_read(world: World) -> None:
    running, (phone, other) = await begin(world)
    world.network.away()
    await soon(lambda: not running.shard.link.connected)
    encrypted = [(await running.client.send(NUMBER, f"purged {n}")).id for n in range(3)]
    new = (await running.client.send(OTHER, "purged")).id
    await running.client.send(NUMBER, "stays")
    await running.client.send(OTHER, "stays")
    await world.until_jobs(6)
    # Deletes only messages that still have the status that the operator saw.
    assert await purge(running, [*encrypted, new], NEW) == (1, 3)
    assert await purge(running, [*encrypted, new, "unknown"], ENCRYPTED, NEW) == (3, 2)
    await world.until_jobs(2)
    await world.network.listen()
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 7)
    for message in (*encrypted, new):
        assert world.sink.statuses_of(message) == ["failed"]
        assert message not in world.network.ids_sent()
    failed = [post.body["statuses"][0] for post in world.sink.posts if post.label[1] == "failed"]
    assert {(error["code"], error["details"]) for status in failed for error in status["errors"]} == {WHY}
    assert texts(phone, world.network.sends) == ["the first", "stays"]
    assert texts(other, world.network.sends) == ["stays"]
    await world.until_jobs(0)
    assert running.shard.context.count() == 0
    async with world.database.reading() as connection:
        audited = await callback_purges.list_after(connection, (0, -1), queue=callback_purges.JOBS)
    assert [(entry.by, entry.deleted) for entry in audited] == [("ann@desk", 1), ("ann@desk", 3)]


async def test_sent_messages_cannot_be_purged_even_after_a_restart(world: World) -> None:
    running, (phone, _) = await begin(world)
    world.network.policy = lambda send: HOLD
    message = (await running.client.send(NUMBER, "sent")).id
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    assert await purge(running, [message]) == (0, 1)
    world.network.away()
    await running.killed()
    again = await world.start(node="again")
    assert await purge(again, [message]) == (0, 1)
    world.network.policy = lambda send: None
    await world.network.listen()
    await world.sink.signals.until(lambda: world.sink.statuses_of(message) == ["sent"])
    assert texts(phone, world.network.sends[:2]) == ["the first", "sent"]
    assert world.network.sends[-1].body == world.network.sends[1].body


async def test_a_purged_message_fails_after_a_kill_and_the_next_owner_does_not_send_it(world: World) -> None:
    running, _ = await begin(world)
    world.network.away()
    await soon(lambda: not running.shard.link.connected)
    world.sink.respond = lambda post: 503
    message = (await running.client.send(OTHER, "purged")).id
    assert await purge(running, [message]) == (1, 0)
    await running.killed()
    world.sink.respond = lambda post: 200
    await world.start(node="again")
    await world.sink.signals.until(lambda: world.sink.statuses_of(message) == ["failed"])
    await world.until_jobs(0)


async def test_a_message_waiting_for_its_file_is_purged_and_later_ones_are_sent(world: World) -> None:
    running, (phone, _) = await begin(world)
    medium = await media_scene.upload(world)
    world.network.blobs.gate = asyncio.Event()
    picture = (await media_scene.send_image(running, NUMBER, medium.id)).id
    same = (await media_scene.send_image(running, OTHER, medium.id)).id
    alone = (await media_scene.send_image(running, NUMBER, medium.id)).id
    behind = (await running.client.send(NUMBER, "behind")).id
    queue = running.shard.media.preparation_queue
    assert queue.waiting == 4
    assert await purge(running, [picture, alone]) == (2, 0)
    await world.sink.signals.until(lambda: world.sink.statuses_of(behind) == ["sent"])
    assert queue.waiting == 1
    # The file is stored all the same, for other messages that name it.
    world.network.blobs.gate.set()
    await world.sink.signals.until(lambda: world.sink.statuses_of(same) == ["sent"])
    assert [world.sink.statuses_of(message) for message in (picture, alone)] == [["failed"]] * 2
    assert texts(phone, world.network.sends) == ["the first", "behind"]
    assert queue.waiting == 0


@pytest.fixture
async def scene(world: World, database_factory: DatabaseFactory, tmp_path: Path) -> AsyncIterator[Scene]:
    async with group_scene(world, database_factory, tmp_path) as scene:
        yield scene


async def test_queued_group_messages_are_purged_and_sender_key_jobs_are_not(scene: Scene) -> None:
    group = await scene.create()
    (ann,) = await scene.joined(group, ANN)
    link = scene.running.shard.link
    # Nothing is sent, as between two connections.
    link.connected = False
    purged = await scene.sent(group, "purged")
    # The sender key for Ann is a job, too.
    await scene.world.until_jobs(2)
    async with scene.world.database.reading() as connection:
        waiting = [job.id for job in await jobs.list_jobs(connection, 0)]
    assert await purge(scene.running, waiting) == (1, 1)
    link.drop("test")
    stays = await scene.sent(group, "stays")
    await scene.until_webhook(lambda: len(scene.statuses(stays)) == 3)
    assert scene.statuses(purged) == [("failed", group, None)]
    assert (ann.keys, [text for _, text in ann.shown]) == (1, ["stays"])


async def test_messages_of_another_shard_are_not_purged(world: World) -> None:
    running, _ = await begin(world)
    refused = await running.client.call(lambda n: core.PurgeJobs(n, ["a"], "ann@desk", "all", 7))
    assert isinstance(refused, core.Refused)
    assert refused.code == codes.NOT_PRIMARY_COREAPP


async def test_a_purge_whose_audit_had_an_unknown_outcome_is_audited_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, _ = await begin(world)
    world.network.away()
    await soon(lambda: not running.shard.link.connected)
    message = (await running.client.send(OTHER, "purged")).id
    insert, transaction = insert_or_update, Database.transaction
    written: list[Connection] = []

    def noted(connection: Connection, table: sa.Table, *given: Any) -> sa.Executable:
        written.append(connection)
        return insert(connection, table, *given)

    @contextlib.asynccontextmanager
    async def lossy(self: Database, **options: Any) -> AsyncIterator[Connection]:
        async with transaction(self, **options) as connection:
            yield connection
        if written == [connection]:
            raise sa.exc.OperationalError("COMMIT", {}, pymysql.err.OperationalError(2013, "Lost connection"))

    monkeypatch.setattr("tidings.storage.business.callback_purges.insert_or_update", noted)
    monkeypatch.setattr(Database, "transaction", lossy)
    assert await purge(running, [message]) == (1, 0)
    assert len(written) == 2
    async with world.database.reading() as connection:
        (entry,) = await callback_purges.list_after(connection, (0, -1), queue=callback_purges.JOBS)
    assert entry.deleted == 1
