"""A process runs out of descriptors, or of memory, for a while."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import resource
from pathlib import Path

import psutil
import pytest

from tests.crash.scene import Phase, Scene
from tests.reliability.scenario import run_scenario

pytestmark = [
    pytest.mark.whole_system,
    pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux changes the limits of others"),
]

MIB = 2**20
# Descriptors and MiB beyond the present use when the limit is lowered.
DESCRIPTORS = 8
MEMORY_MIB = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Scarce:
    """Limit of a process that is a little above its use, for the middle half of the phase.

    A process that ends because of it is restarted, as a supervisor does.
    """

    process: str
    limit: int
    crowd: int = 0  # number of connections that stay open during the limit

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        process = scene.installation.processes[self.process]
        await asyncio.sleep(duration / 4)
        assert process.pid is not None
        before = resource.prlimit(process.pid, self.limit)
        used = psutil.Process(process.pid)
        enough = used.num_fds() + DESCRIPTORS if self.limit == resource.RLIMIT_NOFILE else 0
        if self.limit == resource.RLIMIT_AS:
            enough = used.memory_info().vms + MEMORY_MIB * MIB
        resource.prlimit(process.pid, self.limit, (enough, before[1]))
        writers = [await self._connect(scene) for _ in range(self.crowd)]
        await asyncio.sleep(duration / 2)
        if process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(process.pid, self.limit, before)
        phase.trouble()
        for writer in writers:
            if writer is not None:
                writer.transport.abort()
        if process.pid is None:
            print(f"  {self.process} has ended: {process.log_tail(300)}", flush=True)
            await process.start()

    async def _connect(self, scene: Scene) -> asyncio.StreamWriter | None:
        common = scene.installation.common
        variable = {
            "webapp": "TIDINGS_API_ADDRESS",
            "network": "TIDINGS_NETWORK_HTTP_ADDRESS",
            "coreapp": "TIDINGS_COREAPP_METRICS_ADDRESS",
        }[self.process]
        host, port = common[variable].rsplit(":", 1)
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            return None
        return writer


async def test_a_process_without_descriptors_or_memory_loses_nothing_and_recovers(tmp_path: Path) -> None:
    await run_scenario(
        tmp_path,
        [
            (f"{process}: {what}", 12.0, Scarce(process, limit, crowd))
            for process in ("webapp", "network", "coreapp")
            for what, limit, crowd in (
                ("no descriptors left", resource.RLIMIT_NOFILE, 40),
                ("no memory left", resource.RLIMIT_AS, 0),
            )
        ],
        test="tests/reliability/test_resources.py::"
        "test_a_process_without_descriptors_or_memory_loses_nothing_and_recovers",
        recovery=60.0,
    )
