"""Event ids of statuses: unchanged after the database was restored from a backup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from tests.coreapp.conftest import Running, World
from tests.coreapp.scripted_network import HOLD
from tests.coreapp.webhook.test_delivery import NUMBERS
from tidings.storage.business import callbacks
from tidings.storage.business.messages import Status
from tidings.storage.business.tables import metadata

WAITING = 6  # messages whose jobs are in the backup

Backup = Mapping[str, Sequence[Mapping[str, Any]]]


async def back_up(world: World) -> Backup:
    async with world.database.reading() as connection:
        return {
            name: [dict(row._mapping) for row in await connection.execute(sa.select(table))]
            for name, table in metadata.tables.items()
        }


async def restore(world: World, backup: Backup) -> None:
    async with world.database.transaction() as connection:
        for name, rows in backup.items():
            table = metadata.tables[name]
            await connection.execute(table.delete())
            if rows:
                await connection.execute(table.insert(), list(rows))


async def started(world: World) -> Running:
    running = await world.start()
    await world.connected(running)
    return running


async def event_ids(world: World, messages: Sequence[str]) -> dict[str, str]:
    """Return the event id of each message, from the posts since the sink was emptied."""

    def found() -> dict[str, str]:
        return {post.body["statuses"][0]["id"]: post.event_id for post in world.sink.taken() if "statuses" in post.body}

    await world.sink.signals.until(lambda: set(messages) <= found().keys())
    return found()


async def test_statuses_of_restored_jobs_keep_their_event_ids(world: World) -> None:
    world.add_phones(*NUMBERS)
    running = await started(world)
    world.network.policy = lambda send: HOLD
    messages = [(await running.client.send(NUMBERS[0], f"text {n}")).id for n in range(WAITING)]
    await running.stopped()
    backup = await back_up(world)
    world.network.policy = lambda send: None
    running = await started(world)
    before = await event_ids(world, messages)
    await running.stopped()
    await restore(world, backup)
    world.sink.posts.clear()
    await started(world)
    after = await event_ids(world, messages)
    assert len(before) == 6
    assert len(set(before.values())) == 6
    assert after == before


def test_each_status_of_each_message_and_participant_has_a_unique_event_id() -> None:
    found = {
        callbacks.status_event(message, recipient, int(step))
        for message in ("gBEG1", "gBEG2")
        for recipient in ("15550110001", "15550110002")
        for step in (Status.SENT, Status.DELIVERED, Status.READ, Status.FAILED)
    }
    assert len(found) == 16
    assert {len(event) for event in found} == {36}


@pytest.mark.parametrize(("event", "expected"), [("", "evt_ff"), ("evt_0123", "evt_0123")])
def test_a_callback_without_an_event_id_gets_one_from_its_sequence_number(event: str, expected: str) -> None:
    callback = callbacks.Callback(255, 0, "1", "m", "status_change", b"{}", 0, event=event)
    assert callback.event_id == expected
