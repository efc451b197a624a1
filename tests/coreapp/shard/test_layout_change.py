"""Change of the number of shards: every waiting row is moved to its shard, whichever process dies in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coreapp.shard.layout_change import LayoutChange, place
from harness import metrics, polling
from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.real_network import real_network
from tests.coreapp.test_with_the_network import LivePhone
from tidings.aio import crashpoints
from tidings.storage.business import callbacks, jobs, layouts, relocation, shards
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.database import Database
from tidings.wire import addresses, core
from tidings.wire import connection as wire
from tidings.wire import device as frames

PEERS = [f"1555012{n:04}" for n in range(64)]
NOW = 1_700_000_000_000


class Died(BaseException):
    """Error that stands for the death of the process."""


def test_the_layout_places_peers_as_webapps_do_and_the_rest_in_shard_0() -> None:
    for count in addresses.COUNTS:
        assert [place(peer, count) for peer in PEERS] == [addresses.shard_of(peer, count) for peer in PEERS]
        assert place("15550000000-1767225600", count) == 0
        assert place("services:media", count) == 0


def change(world: World, node: str) -> LayoutChange:
    return LayoutChange(world.database, world.settings.model_copy(update={"node": node}))


async def fill(database: Database) -> None:
    async with database.transaction() as connection:
        await shards.create_shards(connection, 1)
        await jobs.enqueue(
            connection, [Job(f"j{peer}", 0, BUSINESS, peer, JobForm.NEW, "", b"", NOW) for peer in PEERS]
        )
        events = [Callback(seq, 0, BUSINESS, peer, "error", b"{}", NOW) for seq, peer in enumerate(PEERS * 3)]
        await callbacks.enqueue(connection, events, [b"sealed"] * len(events))


async def check(database: Database, count: int) -> None:
    """Check that each row is in its shard, and where the shard reads it."""
    async with database.reading() as connection:
        found = {
            shard: [job.peer for job in await jobs.list_jobs(connection, shard)]
            + [entry.subject for entry in await callbacks.list_pending(connection, shard, after=-1, limit=1000)]
            for shard in range(count)
        }
    assert sum(map(len, found.values())) == 4 * len(PEERS)
    for shard, peers in found.items():
        assert {addresses.shard_of(peer, count) for peer in peers} <= {shard}


@pytest.mark.parametrize(
    ("point", "after"),
    [(crashpoints.AFTER_SHARDS_TAKEN, 1), *((crashpoints.AFTER_MOVED_PAGE, count) for count in (1, 3, 7))],
)
async def test_a_layout_change_killed_at_any_point_is_finished_by_the_next_process(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str, after: int
) -> None:
    monkeypatch.setattr(relocation, "PAGE", 20)
    await fill(world.database)
    async with world.database.transaction() as connection:
        await layouts.request(connection, 8)
    passed = 0

    def reach(name: str) -> None:
        nonlocal passed
        if name == point:
            passed += 1
            if passed == after:
                raise Died

    monkeypatch.setattr(crashpoints, "reach", reach)
    with pytest.raises(Died):
        await change(world, "one").attempt(lambda: False)
    assert not await change(world, "two").attempt(lambda: False), "the first may be alive"
    async with world.database.transaction() as connection:
        await connection.execute(shards.table.update().values(heartbeat_at=0))
    assert await change(world, "two").attempt(lambda: False)
    await check(world.database, 8)
    async with world.database.reading() as connection:
        assert await layouts.find(connection) == layouts.Layout(1, 8)


async def test_metrics_show_the_progress_of_a_layout_change(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relocation, "PAGE", 20)
    await fill(world.database)
    async with world.database.transaction() as connection:
        await layouts.request(connection, 8)
    seen: list[tuple[float, float, float]] = []

    def look() -> tuple[float, float, float]:
        active, wanted = (metrics.value("tidings_shards", state=state) for state in ("active", "wanted"))
        return active, wanted, metrics.value("tidings_layout_rows_in_place")

    monkeypatch.setattr(crashpoints, "reach", lambda name: seen.append(look()))
    assert await change(world, "one").attempt(lambda: False)
    shown = [moved for active, wanted, moved in seen if (active, wanted) == (1, 8)]
    assert shown == sorted(shown)
    assert shown[-1] > len(PEERS)
    assert look() == (8, 8, 0)


async def test_a_kill_after_the_last_step_leaves_a_complete_layout_change(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(world.database)
    async with world.database.transaction() as connection:
        await layouts.request(connection, 4)

    def reach(name: str) -> None:
        if name == crashpoints.AFTER_NEW_LAYOUT:
            raise Died

    monkeypatch.setattr(crashpoints, "reach", reach)
    with pytest.raises(Died):
        await change(world, "one").attempt(lambda: False)
    assert not await change(world, "two").attempt(lambda: False)
    await check(world.database, 4)


async def test_a_planned_stop_during_a_layout_change_lets_the_next_continue_at_once(world: World) -> None:
    await fill(world.database)
    async with world.database.transaction() as connection:
        await layouts.request(connection, 4)
    assert not await change(world, "one").attempt(lambda: True)
    assert await change(world, "two").attempt(lambda: False)
    await check(world.database, 4)


async def test_messages_during_layout_changes_are_shown_and_reported_once(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    numbers = PEERS[:12]
    async with real_network(world, database_factory, tmp_path) as network:
        phones = [LivePhone(number) for number in numbers]
        for phone in phones:
            phone.token = await network.register(phone)
            await wire.connect(*network.tcp, frames.FromNetwork, phone)
        settings = {"network_tcp": network.tcp, "network_http": network.http, "lease_seconds": 5.0}
        first = await world.start(node="first", **settings)
        second = await world.start(node="second", owned=False, **settings)
        await ready(first, numbers)
        sent: dict[str, list[str]] = {number: [] for number in numbers}
        ids: list[str] = []
        stop = asyncio.Event()

        async def load(number: str) -> None:
            for n in range(10_000):
                if stop.is_set():
                    return
                response = None
                while not isinstance(response, core.Accepted):
                    # As a Webapp does: a process that does not own the shard has done nothing.
                    for running in (first, second):
                        response = await running.client.send(number, f"{number} {n}")
                        if isinstance(response, core.Accepted):
                            break
                    else:
                        await asyncio.sleep(0.02)
                sent[number].append(f"{number} {n}")
                ids.append(response.id)
                await asyncio.sleep(0.05)

        loads = [asyncio.create_task(load(number)) for number in numbers]
        for layout, count in enumerate((4, 1), 1):
            async with world.database.transaction() as connection:
                await layouts.request(connection, count)
            await made(world, layout, count)
            # Messages are sent in this layout as well.
            target = len(ids) + 2 * len(numbers)
            await polling.until(lambda target=target: len(ids) >= target, pause=0.01)
        stop.set()
        await asyncio.gather(*loads)
        for phone, number in zip(phones, numbers, strict=True):
            texts = [{"type": "text", "text": {"body": text}} for text in sent[number]]
            async with asyncio.timeout(30):
                await phone.signals.until(lambda phone=phone, texts=texts: len(phone.shown) >= len(texts))
            assert phone.shown == texts
        async with asyncio.timeout(30):
            await world.sink.signals.until(lambda: len(events(world)) >= 4 * len(ids))
        found: dict[str, list[str]] = {}
        for id, status in events(world).values():
            found.setdefault(id, []).append(status)
        assert found == {id: ["sent", "delivered", "read"] for id in ids} | {f"echo-{id}": ["received"] for id in ids}
        await second.stopped()
        await first.stopped()


async def ready(running: Running, numbers: list[str]) -> None:
    async def all_valid() -> bool:
        return all(contact.status == "valid" for contact in await running.client.check(*numbers))

    await polling.until(all_valid, pause=0.01)


def events(world: World) -> dict[str, tuple[str, str]]:
    """Return the webhook's events in order. A callback in progress when its shard is given up is posted again, by its
    id."""
    return {post.event_id: post.label for post in world.sink.taken()}


async def made(world: World, layout: int, count: int) -> None:
    """Wait until the layout has `count` shards, and all of them have owners."""

    async def is_made() -> bool:
        async with world.database.reading() as connection:
            found = await layouts.find(connection)
            owners = await shards.list_owners(connection)
        return found == layouts.Layout(layout, count) and all(owner.address for owner in owners)

    await polling.until(is_made, pause=0.02)
