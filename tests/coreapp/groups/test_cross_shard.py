"""Cross-shard messages: each is handled by the owner of its shard, however many shards exist by then."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import pytest

from coreapp.groups import cross_shard as reading
from coreapp.groups.cross_shard import SentElsewhere
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.signals import soon
from tidings.storage.business import cross_shard_messages
from tidings.storage.business.cross_shard_messages import CrossShardMessage
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.database import Connection
from tidings.wire.ids import MessageIds

NUMBER = "15550110001"


async def test_a_cross_shard_message_is_handled_after_a_reduction_to_one_shard(world: World) -> None:
    world.add_phones(NUMBER)
    before = await world.start()
    job = Job(MessageIds().new(), 0, BUSINESS, NUMBER, JobForm.NEW, "", b"", 1_700_000_000_000)
    note = before.shard.groups.notes.to_send(job, b'{"type":"text","text":{"body":"left"}}')
    await before.stopped()
    async with world.database.transaction() as connection:
        await cross_shard_messages.add(connection, [note])
    await world.start()
    await world.network.signals.until(lambda: world.network.ids_sent() == [note.id])
    async with world.database.reading() as connection:
        assert await cross_shard_messages.list_messages(connection, 0, limit=10) == []


async def test_an_id_added_right_after_the_last_poll_is_polled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "POLL_SECONDS", 0.001)
    running = await world.start()
    watching = SentElsewhere(running.shard.context)
    heard: list[str] = []

    def finished(ids: Sequence[str]) -> None:
        heard.extend(ids)
        if heard == ["a"]:
            # After the end of the poll, before any listener was notified of it.
            asyncio.get_running_loop().call_soon(watching.watch, ["b"])

    async def nothing_is_left(ids: Collection[str]) -> set[str]:
        return set()

    monkeypatch.setattr(watching, "list_unsent", nothing_is_left)
    watching.on_finished = finished
    watching.watch(["a"])
    await soon(lambda: heard == ["a", "b"], timeout=5.0)
    await watching.close()


async def test_a_message_whose_end_is_committed_during_a_read_is_handled_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    reader, context = running.shard.cross_shard_reader, running.shard.context
    job = Job(MessageIds().new(), 0, BUSINESS, NUMBER, JobForm.NEW, "", b"", 1_700_000_000_000)
    note = running.shard.groups.notes.to_send(job, b'{"type":"text","text":{"body":"left"}}')
    async with world.database.transaction() as connection:
        await cross_shard_messages.add(connection, [note])
    async with world.database.reading() as connection:
        page = await cross_shard_messages.list_messages(connection, 0, limit=10)
    await reader.run_once()
    responded = asyncio.Event()

    async def earlier(connection: Connection, shard: int, *, limit: int) -> Sequence[CrossShardMessage]:
        await responded.wait()
        return page

    # The second read starts while the message is in hand, and returns a page from before its end.
    monkeypatch.setattr(cross_shard_messages, "list_messages", earlier)
    second = asyncio.create_task(reader.run_once())
    await soon(lambda: not reader._in_progress and context.count() == 0)
    responded.set()
    await second
    assert not reader._in_progress
    await running.client.send(NUMBER, "behind")
    await world.network.signals.until(lambda: len(world.network.ids_sent()) == 2)
    assert world.network.ids_sent().count(note.id) == 1
