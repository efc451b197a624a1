"""Retention in the Coreapp: deleted rows, kept rows, and the callbacks about them."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from coreapp.context import ShardStore
from coreapp.errors import RequestRefused
from coreapp.retention import (
    AUDITED,
    DEAD_CALLBACKS,
    FINAL_MS,
    GROUP_UNREAD,
    JOB_ERRORS,
    KEYS,
    PURGES,
    QUARANTINED,
    REPLAYS,
    SETTLED_MS,
    SUSPECTS,
    UNREAD,
    UPSTREAM_IDS,
    ListingCollector,
    RetentionService,
    collect_messages,
    old_rows,
)
from tests import statements
from tests.coreapp.conftest import BUSINESS, World
from tests.manual_clock import ManualClock
from tidings.aio.clock import SystemClock
from tidings.storage.business import callbacks, group_messages, job_errors, messages, service_windows, shards
from tidings.storage.business.application_settings import ApplicationSettings
from tidings.storage.business.application_settings import GarbageCollectorSettings as Wanted
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.job_errors import JobError
from tidings.storage.business.messages import Listing, MessageRow, Status
from tidings.storage.business.shards import LeaseLost
from tidings.wire import core

NOW = 1_700_000_000_000
DAY = 24 * 3600 * 1000


def message(message_id: str, status: Status, age: int, *, now: int = NOW, shard: int = 0) -> MessageRow:
    return MessageRow(message_id, BUSINESS, shard, "15550110001", "text", int(status), now - age, "")


async def add(world: World, *rows: MessageRow) -> None:
    async with world.database.transaction() as connection:
        await messages.add(connection, rows)


async def left(world: World) -> set[str]:
    async with world.database.reading() as connection:
        ids = [f"{name}{n}" for name in "abcdefgh" for n in range(3000)]
        return {row.id for row in await messages.list_progress(connection, BUSINESS, ids)}


async def lease(world: World) -> shards.Lease:
    async with world.database.transaction() as connection:
        await shards.create_shards(connection, 2)
        claimed = await shards.claim(connection, 0, owner="first", address="here:1", heartbeat_timeout=30)
    assert claimed is not None
    return claimed


def store(world: World, held: shards.Lease) -> ShardStore:
    return ShardStore(database=world.database, lease=held, clock=ManualClock(NOW / 1000), account=BUSINESS)


async def test_only_old_messages_in_a_final_status_are_deleted(world: World) -> None:
    await add(
        world,
        message("a0", Status.READ, FINAL_MS + 1),
        message("a1", Status.FAILED, FINAL_MS + 1),
        message("a2", Status.DELIVERED, SETTLED_MS + 1),
        message("a3", Status.RECEIVED, SETTLED_MS + 1),
        message("b0", Status.READ, FINAL_MS - 1),
        message("b1", Status.FAILED, FINAL_MS - 1),
        message("b2", Status.DELIVERED, SETTLED_MS - 1),
        message("b3", Status.RECEIVED, SETTLED_MS - 1),
        message("b4", Status.ACCEPTED, 10 * SETTLED_MS),
        message("b5", Status.SENT, 10 * SETTLED_MS),
        message("b6", Status.READ, FINAL_MS + 1, shard=1),
    )
    held = store(world, await lease(world))
    assert await collect_messages(held) == 5, "whichever shard they are of"
    assert await left(world) == {f"b{n}" for n in range(6)}
    assert await collect_messages(held) == 0


async def test_a_host_whose_clock_is_ahead_deletes_nothing_early(world: World) -> None:
    now = SystemClock().now_ms()
    clock = ManualClock(now / 1000 + 400 * 86_400)
    held = ShardStore(database=world.database, lease=await lease(world), clock=clock, account=BUSINESS)
    await add(world, message("a0", Status.READ, 60_000, now=now), message("a1", Status.READ, 2 * FINAL_MS, now=now))
    dead = Callback(now * 1000 << 5, 0, BUSINESS, "m", "status_change", b"{}", now)
    async with world.database.transaction() as connection:
        await callbacks.mark_dead(connection, [dead], [b"{}"])
    assert await collect_messages(held) == 1
    assert await left(world) == {"a0"}
    assert await old_rows(held, unread_days=1, dead_callback_days=1)[DEAD_CALLBACKS]() == 0


async def test_many_messages_are_deleted_page_by_page(world: World) -> None:
    await add(world, *(message(f"c{n}", Status.READ, (n % 2) * 2 * FINAL_MS) for n in range(2500)))
    assert await collect_messages(store(world, await lease(world))) == 1250
    assert len(await left(world)) == 1250


async def test_messages_of_a_release_without_lists_are_moved_until_two_passes_find_none(world: World) -> None:
    held = store(world, await lease(world))
    collect = ListingCollector(held, page=2)
    listed = sa.select(sa.func.count()).where(messages.table.c.listing == int(Listing.FAILED))

    async def pass_over(*rows: MessageRow) -> int:
        await add(world, *rows)
        async with world.database.transaction() as connection:
            ids = [row.id for row in rows]
            await connection.execute(messages.table.update().where(messages.table.c.id.in_(ids)).values(listing=0))
        assert await collect() == 0
        async with world.database.reading() as connection:
            return (await connection.execute(listed)).scalar_one()

    assert await pass_over(*(message(f"a{n}", Status.FAILED, 0) for n in range(5))) == 5
    assert await pass_over() == 5
    # Stored by a Coreapp of such a release, which still runs.
    assert await pass_over(message("b0", Status.FAILED, 0)) == 6
    assert [await pass_over(), await pass_over()] == [6, 6]
    with statements.sent() as noted:
        await collect()
    assert noted == []


async def test_a_lost_lease_stops_the_deletion(world: World) -> None:
    held = await lease(world)
    async with world.database.transaction() as connection:
        await shards.release(connection, held)
        await shards.claim(connection, 0, owner="second", address="there:1", heartbeat_timeout=30)
    await add(world, message("d0", Status.READ, 2 * FINAL_MS))
    with pytest.raises(LeaseLost):
        await collect_messages(store(world, held))
    assert await left(world) == {"d0"}


async def test_the_webhook_gets_the_number_of_deleted_messages(world: World) -> None:
    now = int(SystemClock().now() * 1000)
    await add(world, *(message(f"e{n}", Status.READ, 2 * DAY, now=now) for n in range(3)))
    running = await world.start()
    response = await running.client.call(lambda n: core.CollectGarbage(n, "message"))
    assert isinstance(response, core.Done)
    await world.sink.signals.until(lambda: bool(world.sink.taken()))
    assert world.sink.posts[0].body == {
        "services": [{"message": {"gc": {"messages_deleted": 3, "status": "complete", "node": "first"}}}]
    }
    assert await left(world) == set()


async def test_expired_rows_are_deleted_page_by_page_and_others_are_kept(
    world: World,
) -> None:
    held = await lease(world)
    old, fresh = NOW - 30 * DAY - 1, NOW - 30 * DAY + 1
    async with world.database.transaction() as connection:
        # Errors of jobs that no longer exist.
        strays = [JobError(f"j{n}", 1, "overloaded", old) for n in range(3)]
        await job_errors.execute(
            connection, [job_errors.JobErrorChanges([*strays, JobError("new", 1, "overloaded", NOW)])]
        )
        for n in range(5):
            await service_windows.add_unread(
                connection, [service_windows.UnreadMessage(BUSINESS, f"1{n}", f"old{n}", old)]
            )
            await group_messages.add_unread(
                connection, [group_messages.UnreadGroupMessage(f"g{n}", BUSINESS, "g", "1", old)]
            )
            await callbacks.mark_dead(connection, [Callback(n + 1, 0, BUSINESS, "m", "service", b"{}", old)], [b"\x01"])
        await service_windows.add_unread(connection, [service_windows.UnreadMessage(BUSINESS, "1", "new", fresh)])
        await group_messages.add_unread(
            connection, [group_messages.UnreadGroupMessage("new", BUSINESS, "g", "1", fresh)]
        )
        await callbacks.mark_dead(connection, [Callback(99, 0, BUSINESS, "m", "service", b"{}", fresh)], [b"\x01"])
    collectors = old_rows(store(world, held), unread_days=30, dead_callback_days=30, page=2)
    assert {kind: await collect() for kind, collect in collectors.items()} == {
        KEYS: 0,
        UPSTREAM_IDS: 0,
        UNREAD: 5,
        GROUP_UNREAD: 5,
        DEAD_CALLBACKS: 5,
        REPLAYS: 0,
        PURGES: 0,
        AUDITED: 0,
        JOB_ERRORS: 3,
        SUSPECTS: 0,
        QUARANTINED: 0,
    }
    async with world.database.reading() as connection:
        assert await service_windows.list_unread(connection, BUSINESS, "1", "new", limit=9) == ["new"]
        assert len(await group_messages.list_unread(connection, BUSINESS, "new", limit=9)) == 1
        assert [row.seq for row in await callbacks.list_dead(connection)] == [99]
    kept = old_rows(store(world, held), unread_days=30, dead_callback_days=0)
    assert DEAD_CALLBACKS not in kept


class Fake:
    """Journal that keeps the changes it is given."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def write(self, change: Any) -> None:
        self.bodies += [callback.body for callback in change.new_callbacks]


def collector(wanted: Wanted, **collectors: Any) -> tuple[RetentionService, Fake]:
    journal = Fake()
    settings = ApplicationSettings(garbagecollector_enable=wanted)
    made = RetentionService(
        collectors,
        lambda: settings,
        journal,  # type: ignore[arg-type]
        clock=ManualClock(),
        account=BUSINESS,
        shard=0,
        node="first",
    )
    return made, journal


async def test_a_failed_collection_is_reported_as_failed_and_the_next_one_runs() -> None:
    async def fail() -> int:
        raise RuntimeError("no disk")

    async def seven() -> int:
        return 7

    retention, journal = collector(Wanted(), message=fail, media=seven)
    retention.request("message")
    retention.request("message")
    retention.request("media")
    await retention.run_once(by_itself=False)
    failed, complete = journal.bodies
    assert b'"status":"failed"' in failed
    assert b'"code":1014' in failed
    assert complete == b'{"services":[{"media":{"gc":{"items_deleted":7,"status":"complete","node":"first"}}}]}'


@pytest.mark.parametrize("messages_on", [True, False])
@pytest.mark.parametrize("media_on", [True, False])
async def test_automatic_collection_follows_the_settings_and_reports_nothing(messages_on: bool, media_on: bool) -> None:
    done = []

    async def first() -> int:
        done.append("message")
        return 1

    async def second() -> int:
        done.append("media")
        return 1

    retention, journal = collector(Wanted(messages_on, media_on), message=first, media=second)
    await retention.run_once(by_itself=True)
    assert done == ["message"] * messages_on + ["media"] * media_on
    assert not journal.bodies


def test_a_kind_that_is_not_collected_is_refused() -> None:
    retention, _ = collector(Wanted())
    with pytest.raises(RequestRefused, match="media is not collected here"):
        retention.request("media")
