"""Starts fleets of devices in processes of their own, and asks them questions."""

from __future__ import annotations

import array
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.control import Child
from harness.fleet_device import TCP

Address = tuple[str, int]

# A connection and its login take two of 200 tokens, a WebSocket six.
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
        """Connect these devices and wait until all are logged in; how many seconds that took.

        dials: connections on which nobody is logged in yet, by default as many as the network has tokens for; source:
        the first two bytes of addresses to come from.
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
        """What it got since `forget`; see `Fleet.do_counts`."""
        found: dict[str, Any] = await self.ask("counts")
        return found

    async def take_latencies(self) -> Sequence[float]:
        """Milliseconds of every delivery since the last time."""
        path = self._directory / f"latencies-{next(_files)}"
        await self.ask("latencies", path=str(path))
        found = array.array("f", path.read_bytes())
        path.unlink()
        return found

    async def send(
        self, routes: Sequence[tuple[str, str]], *, rate: float, count: int, size: int, **more: Any
    ) -> dict[str, Any]:
        """Messages along (sender, recipient) in turn; see `Sending` for the rest."""
        found: dict[str, Any] = await self.ask("send", routes=list(routes), rate=rate, count=count, size=size, **more)
        return found
