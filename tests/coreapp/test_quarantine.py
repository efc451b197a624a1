"""Items that end a process or a shard are quarantined after three attempts; everything else is served."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from coreapp.quarantine import Quarantine
from coreapp.receiving import inbox
from coreapp.receiving.inbox import Inbox
from coreapp.webhook.delivery import QUARANTINED
from harness import metrics
from harness.polling import until
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tests.coreapp.receiving.test_events import NUMBER, OTHER, TEXT, acknowledged, with_session
from tests.database_triggers import refused_rows
from tidings.aio import crashpoints
from tidings.aio.crashpoints import ITEM_IN_PROGRESS
from tidings.storage.business import callbacks, jobs, messages, quarantine, queue_views
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.messages import MessageRow, Status
from tidings.storage.business.quarantine import Item, ItemKind, Suspect
from tidings.wire import device as frames


async def suspects(world: World) -> dict[Item, int]:
    async with world.database.reading() as connection:
        return {row.item: row.attempts for row in await quarantine.list_suspects(connection, limit=100)}


async def reopened(world: World, running: Running, phone: Phone) -> None:
    """Wait until a message is sent and its receipt handled, at the end of everything before."""
    message = (await running.client.send(NUMBER)).id
    await world.network.signals.until(lambda: message in world.network.ids_sent())
    world.network.deliver(NUMBER, frames.READ, id=f"r-{message}", refs=[message])
    await acknowledged(world, f"r-{message}")


def inbound(phone: Phone, world: World, envelope_id: str) -> None:
    kind, body = phone.write(TEXT)
    world.network.deliver(phone.number, kind, id=envelope_id, body=body)


async def test_a_delivery_whose_change_is_always_refused_is_quarantined_and_what_came_with_it_is_not(
    world: World,
) -> None:
    running, phone, message = await with_session(world)
    async with refused_rows(world.database, "messages", f"NEW.peer = '{OTHER}'"):
        other = Phone(OTHER)
        world.network.phones[OTHER] = other
        kind, body = other.write(TEXT, world.network.business_bundle())
        gate = asyncio.Event()
        batcher = running.shard.receiving._batcher
        flush = batcher.flush

        async def held(deliveries: object) -> object:
            await gate.wait()
            return await flush(deliveries)  # type: ignore[arg-type]

        # All three form one batch, and one change.
        batcher.flush = held  # type: ignore[assignment]
        world.network.deliver(NUMBER, frames.READ, id="first", refs=[message])
        await world.network.signals.until(lambda: "first" in world.network.mailbox)
        world.network.deliver(OTHER, kind, id="bad", body=body)
        inbound(phone, world, "good")
        gate.set()
        await acknowledged(world, "first", "good", "bad")
        assert metrics.value("tidings_items_quarantined_total", kind="delivery") >= 1

        assert not running.task.done(), "the process ended"
        rows = await suspects(world)
        assert rows.pop(Item(ItemKind.DELIVERY, "bad")) == 3
        assert all(attempts == 1 for attempts in rows.values())
        await world.sink.signals.until(lambda: ("good", "received") in world.sink.labels())
        assert len(running.shard.context.quarantine) == 1
        async with world.database.reading() as connection:
            (row,) = await queue_views.list_quarantine(
                connection, queue_views.RowFilter(statuses=(queue_views.QUARANTINED,))
            )
        assert (row.kind, row.id, row.peer, row.attempts) == ("delivery", "bad", OTHER, 3)
        await running.stopped()

    # The operator has removed the reason, and releases it.
    async with world.database.transaction() as connection:
        assert await quarantine.release(connection, [Item(ItemKind.DELIVERY, "bad")]) == 1
    again = await world.start(node="second")
    await world.sink.signals.until(lambda: ("bad", "received") in world.sink.labels())
    await again.stopped()
    assert Item(ItemKind.DELIVERY, "bad") not in await suspects(world)


async def test_a_delivery_whose_handling_raises_is_quarantined_and_the_others_are_handled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, phone, message = await with_session(world)
    reach = crashpoints.reach

    def raising(name: str, of: str = "") -> None:
        if name == ITEM_IN_PROGRESS and of == OTHER:
            raise RuntimeError("a defect")
        reach(name, of)

    monkeypatch.setattr(crashpoints, "reach", raising)
    world.network.deliver(OTHER, frames.READ, id="bad", refs=[message])
    world.network.deliver(NUMBER, frames.READ, id="good", refs=[message])
    await acknowledged(world, "good", "bad")
    assert not running.task.done(), "the process ended"
    assert (await suspects(world))[Item(ItemKind.DELIVERY, "bad")] == 3
    await reopened(world, running, phone)
    await running.stopped()


async def test_a_job_that_ends_the_shard_is_quarantined_and_the_jobs_around_it_are_sent(world: World) -> None:
    running, phone, _ = await with_session(world)
    await running.stopped()
    async with world.database.transaction() as connection:
        # A read mark whose body is no list of ids.
        bad = Job("bad", 0, BUSINESS, NUMBER, JobForm.ENCRYPTED, frames.READ, b"\xff not JSON", 2)
        around = [
            Job(id, 0, BUSINESS, NUMBER, JobForm.ENCRYPTED, frames.READ, b'["in"]', at)
            for id, at in (("before", 1), ("after", 3))
        ]
        await jobs.enqueue(connection, [bad, *around])
    again = await world.start(node="second")
    await world.network.signals.until(lambda: {"before", "after"} <= set(world.network.ids_sent()))
    await reopened(world, again, phone)
    assert not again.task.done(), "the process ended"
    assert await suspects(world) == {Item(ItemKind.JOB, "bad"): 3}
    assert "bad" not in world.network.ids_sent()
    assert len(again.shard.context.quarantine) == 1
    await again.stopped()
    async with world.database.reading() as connection:
        assert [job.id for job in await jobs.list_jobs(connection, 0)] == ["bad"]


async def test_a_quarantined_message_can_be_purged_or_released(world: World) -> None:
    running, _, _ = await with_session(world)
    held = (await running.client.send(NUMBER)).id
    await world.network.signals.until(lambda: held in world.network.ids_sent())
    await running.stopped()
    async with world.database.transaction() as connection:
        rows = [MessageRow(id, BUSINESS, 0, NUMBER, "text", Status.ACCEPTED, 1, "") for id in ("purged", "released")]
        await messages.add(connection, rows)
        queued = [Job(row.id, 0, BUSINESS, NUMBER, JobForm.NEW, "", b"unreadable", 1) for row in rows]
        await jobs.enqueue(connection, queued)
        await quarantine.save(
            connection, [Suspect(ItemKind.JOB, row.id, "", 3, "x", 1_700_000_000_000) for row in rows]
        )
    again = await world.start(node="second")
    await world.connected(again)
    assert len(again.shard.context.quarantine) == 2
    done = await again.shard.accepting.purge.purge(["purged"], "ann", "by id", ["new"])
    assert done.deleted == 1
    await world.sink.signals.until(lambda: ("purged", "failed") in world.sink.labels())
    await again.stopped()
    async with world.database.transaction() as connection:
        assert await quarantine.release(connection, [Item(ItemKind.JOB, "released")]) == 1
    # It is tried again, and fails since nobody can read it.
    last = await world.start(node="third")
    await world.sink.signals.until(lambda: ("released", "failed") in world.sink.labels())
    await last.stopped()


async def test_a_quarantined_callback_becomes_a_dead_letter_that_can_be_replayed(world: World) -> None:
    running, _, message = await with_session(world)
    await world.sink.signals.until(lambda: (message, "sent") in world.sink.labels())
    bodies = running.shard.context.bodies
    await running.stopped()
    async with world.database.transaction() as connection:
        await quarantine.save(connection, [Suspect(ItemKind.CALLBACK, "7", "", 3, "x", 1_700_000_000_000)])
        bad = callbacks.Callback(7, 0, BUSINESS, message, "status_change", b"{}", 1)
        await callbacks.enqueue(connection, [bad], bodies.seal([bad]))
    again = await world.start(node="second")

    async def is_dead() -> bool:
        async with world.database.reading() as connection:
            found = await queue_views.list_callbacks(connection, queue_views.RowFilter(statuses=(queue_views.DEAD,)))
        return [(row.seq, row.last_error) for row in found] == [(7, QUARANTINED)]

    async with asyncio.timeout(60):
        while not await is_dead():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert await suspects(world) == {}
    await again.stopped()


async def test_strays_are_deleted_and_what_is_quarantined_stays(world: World) -> None:
    old = 1_000
    async with world.database.transaction() as connection:
        await jobs.enqueue(connection, [Job("queued", 0, BUSINESS, NUMBER, JobForm.NEW, "", b"", 1)])
        rows = [
            Suspect(ItemKind.JOB, "queued", "", 3, "x", old),
            Suspect(ItemKind.JOB, "gone", "", 3, "x", old),
            Suspect(ItemKind.DELIVERY, "kept", OTHER, 3, "x", old, b"body"),
            Suspect(ItemKind.DELIVERY, "released", OTHER, 0, "x", old, b"body"),
            Suspect(ItemKind.DELIVERY, "handled", "", 1, "x", old),
            Suspect(ItemKind.DELIVERY, "recent", "", 1, "x", 3_000),
        ]
        await quarantine.save(connection, rows)
        assert await quarantine.delete_strays(connection, 2_000, 100) == 2
    assert {item.id for item in await suspects(world)} == {"queued", "kept", "released", "recent"}
    async with world.database.transaction() as connection:
        assert await quarantine.delete_older(connection, 2_000, 1) == 1
        assert await quarantine.delete_older(connection, 2_000, 100) == 1
    assert {item.id for item in await suspects(world)} == {"queued", "recent"}


def test_an_id_that_no_column_holds_has_a_name() -> None:
    assert quarantine.name("job", "a") == Item("job", "a")
    for long in ("x" * 65, "ä", "a\n", "\ud800"):
        assert len(quarantine.name("job", long).id) == 64


async def test_of_jobs_that_the_database_refuses_together_only_the_cause_is_quarantined(world: World) -> None:
    first, second, third = (f"1555011000{n}" for n in range(1, 4))
    world.add_phones(first, second, third)
    running = await world.start()
    await world.connected(running)
    await running.client.check(first, second, third)
    encryption, rows = running.shard.sending.encryption, []
    for index, number in enumerate((first, second, second, third)):
        job = Job(f"job-{index}", 0, BUSINESS, number, JobForm.NEW, "", b"", index + 1)
        encryption.seal_content(job, TEXT)
        rows.append(job)
    await running.stopped()
    async with world.database.transaction() as connection:
        found = [MessageRow(job.id, BUSINESS, 0, job.peer, "text", Status.ACCEPTED, 1, "") for job in rows]
        await messages.add(connection, found)
        await jobs.enqueue(connection, rows)
    # All four jobs are encrypted in one round, and the database refuses the ciphertext of the second.
    async with refused_rows(world.database, "jobs", "NEW.id = 'job-1' AND NEW.state = 1"):
        again = await world.start(node="second")
        await world.network.signals.until(lambda: {"job-0", "job-2", "job-3"} <= set(world.network.ids_sent()))
        assert not again.task.done(), "the process ended"
        counted = await suspects(world)
        assert counted.pop(Item(ItemKind.JOB, "job-1")) == 3
        assert all(attempts < 3 for attempts in counted.values())
        assert "job-1" not in world.network.ids_sent()
        await again.stopped()


async def test_a_released_delivery_stays_on_disk_until_it_is_handled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, phone, _ = await with_session(world)
    await running.stopped()
    rows = []
    for index in range(20):
        kind, body = phone.write(TEXT)
        delivery = frames.Deliver(1, BUSINESS, NUMBER, f"m{index:02}", kind, 1, body)
        suspect = Suspect(ItemKind.DELIVERY, delivery.id, NUMBER, 3, "", 0)
        rows.append(dataclasses.replace(Quarantine(None, [suspect]).kept(delivery), attempts=0))
    async with world.database.transaction() as connection:
        await quarantine.save(connection, rows)
    # Each transaction has one delivery, and three of them are handled.
    take, steps, begun = Inbox._take, asyncio.Semaphore(2), 0

    async def one_step(receiving: Inbox, deliveries: Sequence[frames.Deliver]) -> int:
        nonlocal begun
        begun += 1
        await steps.acquire()
        return await take(receiving, deliveries)

    monkeypatch.setattr(inbox, "ITERATION_SECONDS", 0.0)
    monkeypatch.setattr(Inbox, "_take", one_step)
    again = await world.start(node="second")
    await until(lambda: begun == 3)
    # Another one arrives, so a batch ends before the released ones.
    inbound(phone, world, "new")
    await until(lambda: again.shard.receiving._batcher.pending == 1)
    steps.release()
    await until(lambda: begun == 4)

    async def three_are_gone() -> bool:
        return len(await suspects(world)) <= 17

    await until(three_are_gone)
    assert set(await suspects(world)) == {Item(ItemKind.DELIVERY, f"m{index:02}") for index in range(3, 20)}
    broken = again.shard.context.journal.broken
    killing = asyncio.create_task(again.killed())
    await until(broken.done)
    # The transaction that waits fails.
    steps.release()
    await killing

    monkeypatch.setattr(Inbox, "_take", take)
    third = await world.start(node="third")
    ids = {*(f"m{index:02}" for index in range(20)), "new"}
    await world.sink.signals.until(lambda: {(id, "received") for id in ids} <= set(world.sink.labels()))
    await third.stopped()
    assert await suspects(world) == {}


def test_a_delivery_that_is_kept_twice_counts_once() -> None:
    found = Quarantine(None, [Suspect(ItemKind.DELIVERY, "bad", NUMBER, 3, "", 0)])
    for n in (1, 2):
        found.kept(frames.Deliver(n, BUSINESS, NUMBER, "bad", frames.MESSAGE, 1, b"x"))
    assert len(found) == 1


async def test_a_released_delivery_that_was_tried_long_ago_is_kept_until_it_is_handled(world: World) -> None:
    item = Item(ItemKind.DELIVERY, "released")
    async with world.database.transaction() as connection:
        await quarantine.save(connection, [Suspect(*item, OTHER, quarantine.MAX_ATTEMPTS, "x", 1_000, b"body")])
        assert await quarantine.release(connection, [item]) == 1
        # The next pass of the retention comes before the restart of the Coreapps.
        await quarantine.delete_older(connection, 2_000, 100)
        released = await quarantine.list_released(connection, chosen=lambda account, peer: True, limit=10)
    assert [row.item for row in released] == [item]


async def test_many_released_deliveries_of_one_number_hide_none_of_another(world: World) -> None:
    second = "15550200000"
    rows = [
        *(Suspect(ItemKind.DELIVERY, f"a{index}", OTHER, 0, "x", 1_000, b"body", BUSINESS) for index in range(20)),
        *(Suspect(ItemKind.DELIVERY, f"b{index}", OTHER, 0, "x", 1_000, b"body", second) for index in range(20)),
    ]
    async with world.database.transaction() as connection:
        await quarantine.save(connection, rows)
        found = await quarantine.list_released(connection, chosen=lambda account, peer: account == second, limit=10)
    assert [row.id for row in found] == sorted(row.id for row in rows[20:])[:10]
