"""Rows of a fleet that runs for a long time."""

from __future__ import annotations

from pathlib import Path

from harness import polling
from tests.handset.harness import bench
from tests.handset.scripted import Business
from tests.manual_clock import ManualClock

READER, DAY = "15550110001", 86_400.0


async def test_received_messages_are_deleted_after_45_days_while_the_fleet_runs(tmp_path: Path) -> None:
    clock, business = ManualClock(), Business()
    async with bench(tmp_path, READER, clock=clock) as world, world.running():
        (device,) = await world.devices()
        business.open(device, world.keys[READER])
        for _ in range(3):
            await world.network.until_acked(world.network.deliver(business.seal(READER, "hello")))
        clock.advance(60 * DAY)
        for _ in range(3):
            frame = business.seal(READER, "late")
            frame.timestamp = clock.now_ms()
            await world.network.until_acked(world.network.deliver(frame))

        async def are_deleted() -> bool:
            return not {row.id for row in await world.inbox()} & {"m1", "m2", "m3"}

        # Maintenance is part of a commit within half a second.
        await polling.until(are_deleted)
