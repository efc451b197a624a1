"""Interpreter GC: when it runs, and that no object stays forever."""

from __future__ import annotations

import gc
import mmap
import weakref
from collections.abc import Iterator

import pytest

from tidings.observability.interpreter_gc import (
    BUSY,
    BUSY_GROWTH,
    CALM,
    GROWTH,
    PERIODS,
    InterpreterCollections,
    ResidentMemory,
    settle,
)


class Knot:
    """Object in a reference cycle with itself."""

    def __init__(self) -> None:
        self.itself = self


class Process:
    """Process whose memory and CPU time the test sets."""

    def __init__(self) -> None:
        self.resident = 100_000_000
        self.cpu = 0.0
        self.collector = InterpreterCollections(lambda: self.resident, lambda: self.cpu)

    def pass_time(self, periods: int, cpu: float = 0.0) -> None:
        """Let periods pass.

        cpu: CPU seconds used in each period.
        """
        for _ in range(periods):
            self.cpu += cpu
            self.collector.sample()


@pytest.fixture
def process() -> Iterator[Process]:
    was_enabled = gc.isenabled()
    gc.disable()
    yield Process()
    if was_enabled:
        gc.enable()


def a_knot() -> weakref.ref[Knot]:
    return weakref.ref(Knot())


def test_an_idle_process_collects_when_its_memory_has_grown(process: Process) -> None:
    here = a_knot()
    process.resident += GROWTH
    process.pass_time(CALM + 1)
    assert here() is not None
    process.resident += 1
    process.pass_time(1)
    assert here() is None


def test_memory_growth_counts_from_the_last_collection(process: Process) -> None:
    process.resident += GROWTH + 1
    process.pass_time(CALM)
    here = a_knot()
    process.pass_time(CALM)
    assert here() is not None


def test_a_collection_waits_until_a_busy_process_is_idle(process: Process) -> None:
    process.resident += GROWTH + 1
    here = a_knot()
    process.pass_time(CALM - 1)
    process.pass_time(1, cpu=2 * BUSY)
    process.pass_time(CALM - 1)
    assert here() is not None
    process.pass_time(1)
    assert here() is None


def test_a_busy_process_collects_after_large_memory_growth(process: Process) -> None:
    here = a_knot()
    process.resident += BUSY_GROWTH
    process.pass_time(1, cpu=2 * BUSY)
    assert here() is not None
    process.resident += 1
    process.pass_time(1, cpu=2 * BUSY)
    assert here() is None


def test_after_ten_minutes_an_idle_process_collects(process: Process) -> None:
    here = a_knot()
    process.pass_time(PERIODS, cpu=2 * BUSY)
    process.pass_time(CALM - 1)
    assert here() is not None
    process.pass_time(1)
    assert here() is None
    here = a_knot()
    process.pass_time(PERIODS - 1)
    assert here() is not None
    process.pass_time(1)
    assert here() is None


async def test_automatic_collection_is_off_from_the_start(process: Process) -> None:
    gc.enable()
    settle()
    here = a_knot()
    many: list[list[int]] = [[] for _ in range(100_000)]
    assert here() is not None
    del many
    gc.unfreeze()


def test_resident_memory_is_read_in_bytes() -> None:
    resident = ResidentMemory()
    before = resident.read()
    # Memory from the kernel, not memory that the process has freed earlier and still holds.
    with mmap.mmap(-1, 50_000_000) as memory:
        memory.write(b"x" * len(memory))
        assert 40_000_000 < resident.read() - before < 60_000_000
