"""`--most-cpu`: a test that uses more CPU time fails; one that waits, or that the machine slows down, does not."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest, processor_speed


def burn() -> None:
    begun = time.process_time()
    while time.process_time() - begun < 0.3:
        pass


def burn_in_a_child() -> None:
    subprocess.run([sys.executable, "-c", "while __import__('time').process_time() < 0.3: pass"], check=True)


def run(test: Callable[[], object], most: float | None) -> None:
    """Run a test under the limit."""
    item: Any = SimpleNamespace(config=SimpleNamespace(getoption={"--most-cpu": most}.get))
    hook = conftest.pytest_runtest_call(item)
    next(hook)
    test()
    with pytest.raises(StopIteration):
        hook.send(None)


@pytest.mark.parametrize("test", [burn, burn_in_a_child])
def test_more_cpu_time_than_the_limit_fails_a_test(test: Callable[[], object]) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"more than 0.02 s: give it its own target"):
        run(test, 0.02)
    run(test, None)


def test_a_wait_does_not_count() -> None:
    run(lambda: time.sleep(0.3), 0.2)


def test_a_collection_of_garbage_is_no_slowdown() -> None:
    collections: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        collections.append(phase)

    thresholds = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(1_000, 1, 1)
    try:
        gc.collect()
        collections.clear()
        processor_speed.slowdown()
        assert gc.isenabled()
        assert collections == []
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(note)


def test_the_limit_grows_with_the_cost_of_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_speed, "_REFERENCE", 0.001)
    run(burn, 0.02)
