"""Start fleets of devices in separate processes, and send them requests."""

from __future__ import annotations

import array
import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import control, spawn
from harness.control import Child
from harness.fleet_device import TCP

Address = tuple[str, int]

# Connections without a login. One and its login take 2 of the network's 200 tokens, with WebSocket 6.
DIALS, WEBSOCKET_DIALS = 90, 30

# Output of all fleets that were forked from one process.
FLEETS_LOG = "fleets.log"

_files = itertools.count()


class FleetProcess(Child):
    """One process with devices; `open` connects some."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name, "harness.fleet", directory)
        self._directory = directory

    async def open(
        self,
        tokens: Mapping[str, str],
        addresses: Sequence[Address],
        *,
        transport: str = TCP,
        dials: int = 0,
        source: str = "",
        seconds: float = 600.0,
    ) -> float:
        """Connect these devices and wait until all are logged in; returns the seconds that it took.

        tokens: by number.
        dials: connections that may be open without a login; 0 for as many as the network has tokens for.
        source: first two bytes of the local addresses; empty for this machine's address.
        """
        response = await self.request(
            "open",
            devices=list(tokens.items()),
            addresses=addresses,
            transport=transport,
            dials=dials or (DIALS if transport == TCP else WEBSOCKET_DIALS),
            source=source,
            seconds=seconds,
        )
        return float(response["seconds"])

    async def counts(self) -> dict[str, Any]:
        """Return the counts since the request `reset`; see `Fleet.do_counts`."""
        found: dict[str, Any] = await self.request("counts")
        return found

    async def take_latencies(self) -> Sequence[float]:
        """Return the latency of each delivery since the last call, in milliseconds."""
        path = self._directory / f"latencies-{next(_files)}"
        await self.request("latencies", path=str(path))
        found = array.array("f", path.read_bytes())
        path.unlink()
        return found

    async def send(
        self, routes: Sequence[tuple[str, str]], *, rate: float, count: int, size: int, **more: Any
    ) -> dict[str, Any]:
        """Send messages along (sender, recipient) pairs round robin; see `Sending` for the rest."""
        found: dict[str, Any] = await self.request(
            "send", routes=list(routes), rate=rate, count=count, size=size, **more
        )
        return found


class ForkedFleet(FleetProcess):
    """Fleet in a process that was forked from one with other fleets, whose modules they share."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name, directory)
        self._log_path = directory / FLEETS_LOG
        self._pid = 0

    @property
    def pid(self) -> int:
        return self._pid

    async def connect(self, ours: socket.socket) -> None:
        """Use this end of a socket pair for requests; returns when the process is ready."""
        await super().connect(ours)
        self._pid = await self.request("pid")

    async def close(self) -> None:
        """Close the socket, at which the process ends, and wait for it; kill it after 20 s."""
        if self._reading is None:
            return
        self._writer.write_eof()
        # The process keeps its end open for as long as it runs.
        _, late = await asyncio.wait([self._reading], timeout=20)
        if late:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            await asyncio.wait(late)
        self._writer.close()


async def fork_fleets(count: int, directory: Path) -> tuple[subprocess.Popen[bytes], list[ForkedFleet]]:
    """Start fleets in processes forked from one; return that one too. It ends after the last fleet."""
    pairs = [socket.socketpair() for _ in range(count)]
    descriptors = [theirs.fileno() for _, theirs in pairs]
    command = [sys.executable, "-m", "harness.fleet", *(f"--control-fd={number}" for number in descriptors)]
    with (directory / FLEETS_LOG).open("ab") as log:
        process = spawn.start(command, cwd=control.ROOT, stdout=log, stderr=log, pass_fds=descriptors)
    fleets = []
    for _, theirs in pairs:
        theirs.close()
    for index, (ours, _) in enumerate(pairs):
        fleet = ForkedFleet(f"fleet-{index}", directory)
        fleets.append(fleet)
        await fleet.connect(ours)
    return process, fleets
