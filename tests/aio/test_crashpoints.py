"""A process dies at its crash point, at the chosen pass, and nowhere else."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tidings.aio import crashpoints

PROGRAM = """
from tidings.aio import crashpoints
import sys
crashpoints.arm(sys.argv[1])
for turn in range(1, 4):
    print(turn, flush=True)
    crashpoints.reach(crashpoints.AFTER_SEND_BEFORE_MARK)
    crashpoints.reach(crashpoints.AFTER_200_BEFORE_MARK)
"""


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    crashpoints.arm(None)


@pytest.mark.parametrize(
    ("spec", "turns", "status"),
    [
        ("after-send-before-mark", ["1"], -signal.SIGKILL),
        ("after-200-before-mark:2", ["1", "2"], -signal.SIGKILL),
        ("after-200-before-mark:9", ["1", "2", "3"], 0),
        ("after-commit-before-reply", ["1", "2", "3"], 0),
        ("", ["1", "2", "3"], 0),
    ],
)
def test_only_the_armed_crash_point_kills_and_only_at_its_pass(spec: str, turns: list[str], status: int) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, spec], capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == turns
    assert done.returncode == status


@pytest.mark.parametrize("spec", ["no-such-place", "after-send-before-mark:x"])
def test_an_unknown_crash_point_is_refused(spec: str) -> None:
    with pytest.raises(ValueError):
        crashpoints.arm(spec)


def test_unarmed_crash_points_do_nothing() -> None:
    crashpoints.arm(None)
    for name in crashpoints.ALL:
        crashpoints.reach(name)
