"""Power loss while messages flow: everything stops at once, and every unsynced byte is lost."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from harness.installation import ORDER, Installation
from harness.mariadb import MariaDB
from tests.crash.scene import ENVIRONMENT, Phase, Scene
from tests.reliability.drive import Drive
from tests.reliability.scenario import run_scenario

pytestmark = [
    pytest.mark.whole_system,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a drive and cut its power"),
]

MIB = 2**20
CUTS = 3


class PowerLoss:
    """Power loss: the processes are paused, the drive is cut off, the processes are killed; then everything
    restarts."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        await asyncio.sleep(scene.rng.uniform(0.2, 0.8) * duration)
        phase.trouble()
        installation = scene.installation
        processes = [installation.processes[name] for name in ORDER]
        # All at one moment: earlier responses are sent, and no process sees the drive fail.
        for process in processes:
            process.pause()
        if installation.mariadb is not None:
            installation.mariadb.pause()
        self._drive.cut()
        for process in processes:
            await process.kill9()
        if installation.mariadb is not None:
            await asyncio.to_thread(installation.mariadb.kill9)
        await asyncio.to_thread(self._drive.restore)
        if installation.mariadb is not None:
            await asyncio.to_thread(installation.mariadb.start)
        await installation.start()


@pytest.mark.parametrize("engine", ["sqlite", "mariadb"])
async def test_acknowledged_data_survives_a_power_loss(engine: str, tmp_path: Path) -> None:
    drive = Drive(tmp_path / "drive", 1024 * MIB)
    with drive.mounted():
        mariadb = MariaDB(flush_log=1, parent=drive.directory) if engine == "mariadb" else None
        if mariadb is not None:
            mariadb.start()
        # Shown messages stay shown, and logs are kept for the analysis of a failure.
        outside = tmp_path / "outside"
        outside.mkdir()
        environment = {**ENVIRONMENT, "TIDINGS_ROBOTS_LOG": str(outside / "robots.jsonl")}
        installation = Installation(outside, mariadb, environment, data_dir=drive.directory / "data")
        try:
            phases = [(f"{engine}: power cut {number}", 15.0, PowerLoss(drive)) for number in range(1, CUTS + 1)]
            await run_scenario(
                tmp_path / "play",
                phases,
                test="tests/reliability/test_power_loss.py::test_acknowledged_data_survives_a_power_loss",
                recovery=60.0,
                installation=installation,
            )
        finally:
            if mariadb is not None:
                mariadb.remove()
