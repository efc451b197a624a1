"""The wall clock jumps by an hour, forward and back, for all processes or for one alone."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from harness import packages
from harness.installation import ORDER, Installation
from tests.crash.scene import ENVIRONMENT, Phase, Scene
from tests.reliability.scenario import run_scenario

pytestmark = pytest.mark.whole_system

# The program is only a sign of its package. The library next to it changes the time that processes see.
FAKETIME = {"faketime": "faketime"}
LIBRARIES = Path("/usr/lib")
HOUR = 3600


class Clocks:
    """Offset of each process's wall clock. Its monotonic clock is unchanged, as with a clock that was set."""

    def __init__(self, directory: Path) -> None:
        packages.require(FAKETIME, FAKETIME)
        self._library = next(LIBRARIES.glob("*/faketime/libfaketimeMT.so.1"))
        self._directory = directory

    def environment(self, process: str) -> dict[str, str]:
        self.set(process, 0)
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file(process)),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_NO_CACHE": "0",
        }

    def set(self, process: str, seconds: int) -> None:
        """Set a process's wall clock `seconds` ahead of the real time from now on."""
        replacement = self._file(process).with_suffix(".new")
        replacement.write_text(f"{seconds:+d}\n")
        replacement.replace(self._file(process))

    def _file(self, process: str) -> Path:
        return self._directory / f"{process}.time"


@dataclasses.dataclass(frozen=True, slots=True)
class Jump:
    """Clock jump: forward in the first third of the phase, and back in the last.

    With a negative number of seconds the clock goes back first.
    """

    clocks: Clocks
    processes: tuple[str, ...]
    seconds: int

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        for seconds in (self.seconds, 0):
            await asyncio.sleep(duration / 3)
            phase.trouble()
            for process in self.processes:
                self.clocks.set(process, seconds)
        await asyncio.sleep(duration / 3)


async def test_a_clock_jump_loses_no_message_and_no_login(tmp_path: Path) -> None:
    directory = tmp_path / "clocks"
    directory.mkdir()
    clocks = Clocks(directory)
    installation = Installation(tmp_path, None, {**ENVIRONMENT, "TIDINGS_LEASE_SECONDS": "15"})
    for name in ORDER:
        installation.processes[name].environment |= clocks.environment(name)
    await run_scenario(
        tmp_path / "play",
        [
            ("clocks of all: an hour forward and back", 15.0, Jump(clocks, ORDER, HOUR)),
            ("clocks of all: an hour back and forward", 15.0, Jump(clocks, ORDER, -HOUR)),
            ("clock of the coreapp: an hour forward and back", 15.0, Jump(clocks, ("coreapp",), HOUR)),
            ("clock of the coreapp: an hour back and forward", 15.0, Jump(clocks, ("coreapp",), -HOUR)),
            ("clock of the network: an hour forward and back", 15.0, Jump(clocks, ("network",), HOUR)),
            ("clock of the webapp: an hour back and forward", 15.0, Jump(clocks, ("webapp",), -HOUR)),
        ],
        test="tests/reliability/test_clocks.py::test_a_clock_jump_loses_no_message_and_no_login",
        recovery=60.0,
        installation=installation,
    )
