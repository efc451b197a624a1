"""Profiles that a process writes of itself."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from cli import process


def warm_up(until: float) -> None:
    while time.process_time() < until:
        pass


def measured_work(until: float) -> None:
    while time.process_time() < until:
        pass


@pytest.mark.parametrize("restart", [False, True])
def test_a_profile_leaves_out_what_ran_before_its_restart(tmp_path: Path, restart: bool) -> None:
    path = tmp_path / "profile.txt"
    with process.profiling(str(path)):
        warm_up(time.process_time() + 0.1)
        if restart:
            os.kill(os.getpid(), signal.SIGUSR2)
        measured_work(time.process_time() + 0.1)
    written = path.read_text()
    assert ".measured_work:" in written
    assert (".warm_up:" in written) is not restart


def test_a_profile_gives_the_signals_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGPROF), signal.getsignal(signal.SIGUSR2)
    with process.profiling(str(tmp_path / "profile.txt")):
        assert signal.getsignal(signal.SIGUSR2) not in before
    assert (signal.getsignal(signal.SIGPROF), signal.getsignal(signal.SIGUSR2)) == before


def test_without_a_path_nothing_is_sampled() -> None:
    with process.profiling(""):
        assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
