"""How late the event loop is, and the room on the disks."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from harness import metrics
from tidings.runtime import vitals
from tidings.runtime.vitals import Vitals


def above(seconds: str) -> float:
    """Looks at the loop that found it later than this bound of the histogram."""
    return metrics.value("tidings_event_loop_lag_seconds_count") - metrics.value(
        "tidings_event_loop_lag_seconds_bucket", le=seconds
    )


async def test_a_loop_that_was_held_up_is_seen_to_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vitals, "LAG_INTERVAL", 0.01)
    stop = asyncio.Event()
    before = above("0.1")
    running = asyncio.create_task(Vitals({}).run(stop))
    await asyncio.sleep(0)
    time.sleep(0.2)  # noqa: ASYNC251 (that is what is to be seen)
    async with asyncio.timeout(10):
        while above("0.1") == before:  # noqa: ASYNC110 (the metric has to be asked)
            await asyncio.sleep(0.001)
    stop.set()
    await running
    assert above("0.1") == before + 1


async def test_the_room_on_each_disk_is_shown_while_the_service_runs(tmp_path: Path) -> None:
    stop = asyncio.Event()
    gone = tmp_path / "gone"
    running = asyncio.create_task(Vitals({"test": tmp_path, "gone": gone}).run(stop))
    async with asyncio.timeout(10):
        while not metrics.value("tidings_disk_size_bytes", directory="test"):  # noqa: ASYNC110 (as above)
            await asyncio.sleep(0.001)
    free = metrics.value("tidings_disk_free_bytes", directory="test")
    assert 0 < free <= metrics.value("tidings_disk_size_bytes", directory="test")
    stop.set()
    await running
    assert not metrics.value("tidings_disk_size_bytes", directory="test")
