"""Start fleets of devices in separate processes, and send them requests."""

from __future__ import annotations

import array
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.control import Child
from harness.fleet_device import TCP

Address = tuple[str, int]

# Connections without a login. One and its login take 2 of the network's 200 tokens, with WebSocket 6.
DIALS, WEBSOCKET_DIALS = 90, 30

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
        answer = await self.ask(
            "open",
            devices=list(tokens.items()),
            addresses=addresses,
            transport=transport,
            dials=dials or (DIALS if transport == TCP else WEBSOCKET_DIALS),
            source=source,
            seconds=seconds,
        )
        return float(answer["seconds"])

    async def counts(self) -> dict[str, Any]:
        """Return the counts since `forget`; see `Fleet.do_counts`."""
        found: dict[str, Any] = await self.ask("counts")
        return found

    async def take_latencies(self) -> Sequence[float]:
        """Return the latency of each delivery since the last call, in milliseconds."""
        path = self._directory / f"latencies-{next(_files)}"
        await self.ask("latencies", path=str(path))
        found = array.array("f", path.read_bytes())
        path.unlink()
        return found

    async def send(
        self, routes: Sequence[tuple[str, str]], *, rate: float, count: int, size: int, **more: Any
    ) -> dict[str, Any]:
        """Send messages along (sender, recipient) pairs round robin; see `Sending` for the rest."""
        found: dict[str, Any] = await self.ask("send", routes=list(routes), rate=rate, count=count, size=size, **more)
        return found
