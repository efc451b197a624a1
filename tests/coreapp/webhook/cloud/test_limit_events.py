"""Changed limits of a number reach the callback of the app once, if it is subscribed to their fields."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from coreapp import webhook_secrets
from coreapp.journal.change import Change
from coreapp.journal.journal import Journal
from coreapp.webhook import limit_events
from coreapp.webhook.limit_events import LimitEvents
from harness import polling
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.sink import SECRET
from tests.coreapp.webhook.cloud.test_cloud_webhooks import APP, CloudSink, receiving, subscribe
from tidings.storage.business import cloud_limits, numbers
from tidings.storage.business.cloud_limits import CloudLimits

QUALITY, CAPABILITY = "phone_number_quality_update", "business_capability_update"


@pytest.fixture
async def cloud_sink() -> AsyncIterator[CloudSink]:
    async with receiving(webhook_secrets.app_secret(SECRET, APP)) as sink:
        yield sink


async def change(world: World, **values: object) -> None:
    async with world.database.transaction() as connection:
        await cloud_limits.change(connection, BUSINESS, values)


async def limits(world: World) -> CloudLimits:
    async with world.database.reading() as connection:
        return await cloud_limits.find(connection, BUSINESS)


def changes(sink: CloudSink) -> list[tuple[str, dict[str, Any]]]:
    """Return field and value of each webhook, whose envelope has a time."""
    found = []
    for post in sink.posts:
        [entry] = post.body["entry"]
        assert list(entry) == ["id", "time", "changes"]
        assert abs(entry["time"] - time.time()) < 60
        [change] = entry["changes"]
        found.append((change["field"], change["value"]))
    return found


async def test_changed_messaging_limits_and_a_raised_throughput_are_posted(world: World, cloud_sink: CloudSink) -> None:
    await subscribe(world, cloud_sink.url, fields=(QUALITY, CAPABILITY))
    running = await world.start()
    await world.connected(running)
    await change(world, tier="TIER_250")
    await cloud_sink.signals.until(lambda: len(cloud_sink.posts) == 2)
    await change(world, throughput="HIGH", upgrade_ends_at=int(time.time() * 1000) + 700)
    await cloud_sink.signals.until(lambda: len(cloud_sink.posts) == 3)
    assert time.time() * 1000 >= (await limits(world)).upgrade_ends_at
    await change(world, tier="TIER_2K", throughput="STANDARD", upgrade_ends_at=0)
    await cloud_sink.signals.until(lambda: len(cloud_sink.posts) == 5)
    assert changes(cloud_sink) == [
        (
            QUALITY,
            {
                "display_phone_number": "15550000000",
                "event": "DOWNGRADE",
                "old_limit": "TIER_UNLIMITED",
                "current_limit": "TIER_250",
            },
        ),
        (CAPABILITY, {"max_daily_conversations_per_business": 250, "max_phone_numbers_per_waba": 25}),
        (
            QUALITY,
            {"display_phone_number": "15550000000", "event": "THROUGHPUT_UPGRADE", "current_limit": "TIER_250"},
        ),
        (
            QUALITY,
            {
                "display_phone_number": "15550000000",
                "event": "UPGRADE",
                "old_limit": "TIER_250",
                "current_limit": "TIER_2K",
            },
        ),
        (CAPABILITY, {"max_daily_conversations_per_business": 2000, "max_phone_numbers_per_waba": 25}),
    ]
    assert len({event for post in cloud_sink.posts for event in post.event_ids}) == 5


async def test_a_change_that_happens_again_has_another_event_id(world: World, cloud_sink: CloudSink) -> None:
    await subscribe(world, cloud_sink.url, fields=(QUALITY,))
    running = await world.start()
    await world.connected(running)
    for count, tier in enumerate(("TIER_250", "TIER_1K", "TIER_250", "TIER_1K", "TIER_250", "TIER_1K"), 1):
        await change(world, tier=tier)
        await cloud_sink.signals.until(lambda count=count: len(cloud_sink.posts) == count)  # type: ignore[misc]
    assert [value["event"] for _, value in changes(cloud_sink)[1:]] == ["UPGRADE", "DOWNGRADE"] * 2 + ["UPGRADE"]
    assert len({event for post in cloud_sink.posts for event in post.event_ids}) == 6


async def test_a_change_of_a_number_that_was_added_again_has_another_event_id(
    world: World, cloud_sink: CloudSink
) -> None:
    async def add_again(created_at: int) -> None:
        """Leave what a removal and a new addition of the number leave."""
        async with world.database.transaction() as connection:
            await connection.execute(cloud_limits.table.delete())
            await numbers.add_first(connection, BUSINESS)
            await connection.execute(numbers.table.update().values(created_at=created_at))

    await subscribe(world, cloud_sink.url, fields=(QUALITY,))
    running = await world.start()
    await world.connected(running)
    for created_at in (1_700_000_000_000, 1_800_000_000_000):
        await add_again(created_at)
        await running.shard.webhook.limit_events.run_once()
        count = len(cloud_sink.posts) + 1
        await change(world, tier="TIER_250")
        await cloud_sink.signals.until(lambda count=count: len(cloud_sink.posts) == count)  # type: ignore[misc]
    assert [value["current_limit"] for _, value in changes(cloud_sink)] == ["TIER_250"] * 2
    assert len({event for post in cloud_sink.posts for event in post.event_ids}) == 2


async def test_a_change_made_while_no_coreapp_ran_is_posted_once(world: World, cloud_sink: CloudSink) -> None:
    await subscribe(world, cloud_sink.url, fields=(CAPABILITY,))
    await change(world, tier="TIER_10K")
    running = await world.start()
    await world.connected(running)
    await cloud_sink.signals.until(lambda: len(cloud_sink.posts) == 1)

    async def is_noted() -> bool:
        return (await limits(world)).announced_tier == "TIER_10K"

    await polling.until(is_noted, pause=0.01)
    await running.stopped()
    again = await world.start()
    await world.connected(again)
    await again.shard.webhook.limit_events.run_once()
    await again.stopped()
    assert len(cloud_sink.posts) == 1


async def test_callbacks_and_announced_limits_are_one_change(
    world: World, cloud_sink: CloudSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Change] = []
    write = Journal.write

    async def noted(journal: Journal, change: Change) -> None:
        written.append(change)
        await write(journal, change)

    monkeypatch.setattr(Journal, "write", noted)
    await subscribe(world, cloud_sink.url, fields=(QUALITY, CAPABILITY))
    running = await world.start()
    await world.connected(running)
    await change(world, tier="TIER_250")
    await cloud_sink.signals.until(lambda: len(cloud_sink.posts) == 2)
    [announcing] = [one for one in written if one.announced_limits]
    assert len(announcing.new_callbacks) == 2
    assert (await limits(world)).announced_tier == "TIER_250"


async def test_a_run_in_progress_does_not_delay_the_stop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = asyncio.Event()

    async def hang(events: LimitEvents) -> None:
        entered.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(LimitEvents, "run_once", hang)
    running = await world.start()
    await world.connected(running)
    await entered.wait()
    async with asyncio.timeout(5):
        await running.stopped()


async def test_changes_without_a_subscription_are_not_posted_later(world: World, cloud_sink: CloudSink) -> None:
    await change(world, tier="TIER_10K", throughput="HIGH", upgrade_ends_at=1)
    running = await world.start()
    await world.connected(running)
    await running.shard.webhook.limit_events.run_once()
    found = await limits(world)
    assert (found.announced_tier, found.announced_throughput) == ("TIER_10K", "HIGH")
    await running.stopped()
    await subscribe(world, cloud_sink.url, fields=(QUALITY, CAPABILITY))
    again = await world.start()
    await world.connected(again)
    assert await again.shard.webhook.limit_events.run_once() is None
    assert cloud_sink.posts == []


@pytest.mark.parametrize(
    ("tier", "version", "value"),
    [
        ("TIER_250", 25, {"max_daily_conversations_per_business": 250, "max_phone_numbers_per_waba": 25}),
        ("TIER_UNLIMITED", 24, {"max_daily_conversations_per_business": -1, "max_phone_numbers_per_waba": 25}),
        ("TIER_1K", 23, {"max_daily_conversation_per_phone": 1000, "max_phone_numbers_per_business": 25}),
    ],
)
def test_the_capability_has_the_fields_of_its_version(tier: str, version: int, value: dict[str, int]) -> None:
    assert limit_events.capability(tier, version) == value
