"""The messaging limit of a WABA rises after half of it is used within 7 days, unless it is not to rise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.test_settings import read
from tests.manual_clock import ManualClock
from tidings.config.env import SettingsError
from tidings.storage.business import cloud_limits, cloud_reached, numbers
from tidings.storage.business.cloud_limits import CloudLimits
from tidings.wire.cloud.tiers import next_tier

HOUR, DAY = 3600.0, 24 * 3600.0


async def reach(world: World, first: int, count: int, at: float, account: str = BUSINESS) -> None:
    """Count recipients as the shards of a WABA's numbers do."""
    wanted = [(f"15550{first + n:06}", 100_000) for n in range(count)]
    async with world.database.transaction() as connection:
        await cloud_reached.admit(connection, account, wanted, now=int(at * 1000))


async def set_tier(world: World, tier: str) -> None:
    async with world.database.transaction() as connection:
        await cloud_limits.change(connection, BUSINESS, {"tier": tier, "tier_rises_at": 0})


async def limits(world: World) -> CloudLimits:
    async with world.database.reading() as connection:
        return await cloud_limits.find(connection, BUSINESS)


async def run_once(running: Running) -> float | None:
    return await running.shard.accepting.tier_rises.run_once()


async def test_a_limit_rises_six_hours_after_half_of_it_is_used_within_seven_days(world: World) -> None:
    clock = ManualClock()
    running = await world.start(clock=clock)
    await set_tier(world, "TIER_250")
    await reach(world, 0, 24, clock.now() - 7 * DAY)
    await reach(world, 100, 124, clock.now() - 6 * DAY)
    assert await run_once(running) == 300.0
    assert (await limits(world)).tier_rises_at == 0
    await reach(world, 300, 1, clock.now())
    assert await run_once(running) == 300.0
    found = await limits(world)
    assert (found.tier, found.tier_rises_at) == ("TIER_250", int((clock.now() + 6 * HOUR) * 1000))
    clock.advance(6 * HOUR - 100)
    assert await run_once(running) == pytest.approx(100.0, abs=0.01)
    assert (await limits(world)).tier == "TIER_250"
    clock.advance(100)
    assert await run_once(running) == 300.0
    found = await limits(world)
    assert (found.tier, found.tier_rises_at) == ("TIER_2K", 0)


async def test_the_limit_of_the_installation_rises_for_the_waba_that_uses_it(world: World) -> None:
    clock = ManualClock()
    running = await world.start(clock=clock, cloud_tier="TIER_50", cloud_tier_rise=0.0)
    await reach(world, 0, 25, clock.now())
    assert await run_once(running) in (0.0, 1.0)
    await run_once(running)
    assert (await limits(world)).tier == "TIER_250"


async def test_a_limit_that_the_operator_sets_does_not_rise_at_an_earlier_time(world: World) -> None:
    clock = ManualClock()
    running = await world.start(clock=clock)
    await set_tier(world, "TIER_250")
    await reach(world, 0, 125, clock.now())
    await run_once(running)
    await set_tier(world, "TIER_10K")
    clock.advance(7 * HOUR)
    assert await run_once(running) == 300.0
    assert (await limits(world)).tier == "TIER_10K"


@pytest.mark.parametrize("case", ["never", "unlimited", "shared"])
async def test_shared_unlimited_and_disabled_limits_do_not_rise(world: World, case: str) -> None:
    if case == "shared":
        async with world.database.transaction() as connection:
            await numbers.add_first(connection, BUSINESS)
            await connection.execute(numbers.table.update().values(waba_of="15550000001"))
    clock = ManualClock()
    running = await world.start(clock=clock, cloud_tier_rise=float("inf" if case == "never" else 0))
    await set_tier(world, "TIER_UNLIMITED" if case == "unlimited" else "TIER_250")
    await reach(world, 0, 250, clock.now())
    assert await run_once(running) is None
    assert (await limits(world)).tier_rises_at == 0


@pytest.mark.parametrize(
    ("tier", "following"),
    [
        ("TIER_50", "TIER_250"),
        ("TIER_250", "TIER_2K"),
        ("TIER_1K", "TIER_10K"),
        ("TIER_2K", "TIER_10K"),
        ("TIER_10K", "TIER_100K"),
        ("TIER_100K", "TIER_UNLIMITED"),
    ],
)
def test_the_next_limit_follows_from_the_current_one(tier: str, following: str) -> None:
    assert next_tier(tier) == following


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0.0), ("90", 90.0), ("604800", 604_800.0), ("NEVER", float("inf")), ("never", float("inf"))],
)
def test_the_delay_is_read_from_the_environment(tmp_path: Path, text: str, seconds: float) -> None:
    assert read(tmp_path, TIDINGS_CLOUD_TIER_RISE_S=text).cloud_tier_rise == seconds
    assert read(tmp_path).cloud_tier_rise == 21_600.0


@pytest.mark.parametrize("text", ["-1", "604801", "soon"])
def test_another_delay_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"TIDINGS_CLOUD_TIER_RISE_S=.* is neither never nor a number from 0.0 to"):
        read(tmp_path, TIDINGS_CLOUD_TIER_RISE_S=text)
