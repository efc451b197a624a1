"""Retention of media: files that were not used for a month, and files without a row, are deleted."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from coreapp.context import ShardStore
from coreapp.media.collector import ORPHAN_SECONDS, UNUSED_MS, MediaCollector
from tests.coreapp import media_scene as scene
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.test_retention import lease
from tests.manual_clock import ManualClock
from tidings.aio.clock import SystemClock
from tidings.storage.business import media, shards, stickerpacks
from tidings.storage.business.shards import LeaseLost
from tidings.storage.database import Database
from tidings.wire import core


def now_ms() -> int:
    return int(SystemClock().now() * 1000)


async def collector(
    world: World, held: shards.Lease | None = None, database: Database | None = None, **options: Any
) -> MediaCollector:
    clock, lease_ = ManualClock(SystemClock().now()), held or await lease(world)
    store = ShardStore(database=database or world.database, lease=lease_, clock=clock, account=BUSINESS)
    return MediaCollector(store, scene.directory(world), **options)


def orphan(world: World, name: str, age: float) -> None:
    path = scene.directory(world).directory / name
    path.write_bytes(b"left behind")
    then = SystemClock().now() - age
    os.utime(path, (then, then))


def names(world: World) -> set[str]:
    return {path.name for path in world.settings.media_dir.iterdir()}


async def test_media_unused_for_30_days_are_deleted_with_their_files(world: World) -> None:
    old = [await scene.upload(world, used_at=now_ms() - UNUSED_MS - 60_000) for _ in range(3)]
    fresh = await scene.upload(world, used_at=now_ms() - UNUSED_MS + 60_000)
    collect = await collector(world)
    assert await collect() == 3
    assert names(world) == {fresh.file}
    assert [await scene.find(world, row.id) for row in old] == [None] * 3
    assert await scene.find(world, fresh.id) is not None
    assert await collect() == 0


async def test_many_files_are_deleted_page_by_page(world: World) -> None:
    for _ in range(7):
        await scene.upload(world, used_at=1)
    assert await (await collector(world, page=2))() == 7
    assert names(world) == set()


async def test_files_without_a_row_are_deleted_after_a_day(world: World) -> None:
    used = await scene.upload(world, used_at=now_ms())
    os.utime(scene.directory(world).path(used.file), (0, 0))
    orphan(world, "a" * 32, ORPHAN_SECONDS + 60)
    orphan(world, "b" * 32 + ".part", ORPHAN_SECONDS + 60)
    orphan(world, "c" * 32, ORPHAN_SECONDS - 60)
    orphan(world, "d" * 32 + ".part", 0)
    assert await (await collector(world))() == 2
    assert names(world) == {used.file, "c" * 32, "d" * 32 + ".part"}


async def test_media_used_during_a_collection_are_kept(world: World) -> None:
    row = await scene.upload(world, used_at=1)

    class Late(Database):
        """File store in which a file is used right after it was checked."""

        async def query(self, work: Callable[[AsyncConnection], Awaitable[Any]], **options: Any) -> Any:
            found = await super().query(work, **options)
            async with self.transaction() as connection:
                await media.touch(connection, [row.id], now_ms())
            return found

    database = Late(world.database.settings, "business")
    collect = await collector(world, database=database)
    assert await collect() == 0
    assert names(world) == {row.file}
    await database.close()


async def test_a_lost_lease_stops_the_deletion(world: World) -> None:
    held = await lease(world)
    row = await scene.upload(world, used_at=1)
    async with world.database.transaction() as connection:
        await shards.release(connection, held)
        await shards.claim(connection, 0, owner="second", address="there:1", heartbeat_timeout=30)
    with pytest.raises(LeaseLost):
        await (await collector(world, held))()
    assert names(world) == {row.file}


async def test_the_webhook_gets_the_number_of_deleted_items(world: World) -> None:
    await scene.upload(world, used_at=1)
    orphan(world, "a" * 32, ORPHAN_SECONDS + 60)
    running = await world.start()
    response = await running.client.call(lambda n: core.CollectGarbage(n, "media"))
    assert isinstance(response, core.Done)
    await world.sink.signals.until(lambda: bool(world.sink.taken()))
    assert world.sink.posts[0].body == {
        "services": [{"media": {"gc": {"items_deleted": 2, "status": "complete", "node": "first"}}}]
    }
    assert names(world) == set()


async def test_by_default_media_unused_for_90_days_are_deleted_except_pack_stickers(world: World) -> None:
    old, named, fresh = [
        await scene.upload(world, used_at=now_ms() - days * 24 * 3600 * 1000) for days in (91, 400, 89)
    ]
    async with world.database.transaction() as connection:
        await connection.execute(
            stickerpacks.stickers.insert().values(pack="p", position=0, image_data_id=named.id, emojis="")
        )
    running = await world.start()
    await running.shard.retention.run_once(by_itself=True)
    await running.stopped()
    assert names(world) == {named.file, fresh.file}
    assert await scene.find(world, old.id) is None
    forever = await collector(world, unused_ms=0)
    assert await forever() == 0
