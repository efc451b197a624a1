"""What collections of garbage look through, and that nothing is kept for good."""

from __future__ import annotations

import gc
import mmap
import weakref
from collections.abc import Iterator

import pytest

from tidings.runtime.garbage import BUSY_GROWTH, GROWTH, PERIODS, Collector, Resident


class Plain:
    """An object in no cycle."""


class Knot(Plain):
    """An object in a cycle with itself."""

    def __init__(self) -> None:
        self.itself = self


class Process:
    """A process whose memory and CPU are what the test says."""

    def __init__(self) -> None:
        self.resident = 100_000_000
        self.cpu = 0.0
        self.collector = Collector(lambda: self.resident, lambda: self.cpu)


@pytest.fixture
def process() -> Iterator[Process]:
    was_enabled = gc.isenabled()
    gc.disable()
    yield Process()
    gc.unfreeze()
    if was_enabled:
        gc.enable()


def a_knot() -> weakref.ref[Knot]:
    return weakref.ref(Knot())


def test_what_was_there_at_the_last_look_is_passed_by_until_memory_has_grown(process: Process) -> None:
    here = a_knot()
    process.collector.look()
    assert gc.get_freeze_count() > 1000
    process.resident += GROWTH
    process.collector.look()
    gc.collect()
    assert here() is not None
    process.resident += 1
    process.collector.look()
    assert here() is None
    assert gc.get_freeze_count() > 1000


def test_growth_counts_from_what_the_last_look_at_everything_has_left(process: Process) -> None:
    process.resident += GROWTH + 1
    process.collector.look()
    here = a_knot()
    process.collector.look()
    assert here() is not None


def test_a_busy_process_looks_at_everything_later(process: Process) -> None:
    here = a_knot()
    process.cpu += 0.6
    process.resident += BUSY_GROWTH
    process.collector.look()
    assert here() is not None
    process.cpu += 0.6
    process.resident += 1
    process.collector.look()
    assert here() is None


def test_everything_is_looked_at_after_ten_minutes_once_there_is_time(process: Process) -> None:
    here = a_knot()
    for _ in range(PERIODS):
        process.cpu += 0.6
        process.collector.look()
    assert here() is not None
    process.collector.look()
    assert here() is None
    here = a_knot()
    for _ in range(PERIODS - 1):
        process.collector.look()
    assert here() is not None
    process.collector.look()
    assert here() is None


def test_what_is_new_is_collected_and_what_falls_out_of_use_needs_no_collection(process: Process) -> None:
    plain = Plain()
    process.collector.look()
    here, plain_here = a_knot(), weakref.ref(plain)
    del plain
    assert plain_here() is None
    gc.collect(0)
    assert here() is None


def test_memory_is_read_in_bytes() -> None:
    resident = Resident()
    before = resident.read()
    # From the kernel, and not from what the process has freed earlier and still holds.
    with mmap.mmap(-1, 50_000_000) as memory:
        memory.write(b"x" * len(memory))
        assert 40_000_000 < resident.read() - before < 60_000_000
