"""Connected devices, and one that sends to them; everything that is sent has to arrive, once and whole."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.devices.network import DeviceNetwork, most_connections, numbers
from benchmarks.rig.run import Failed
from harness.fleet_device import TCP
from harness.fleet_process import FleetProcess

SENDER = "15559999999"
# Envelopes a second with which everybody is written to for the first time.
FIRST_RATE = 1000.0
# Seconds in which the last ones arrive.
PATIENCE = 60.0


@dataclasses.dataclass(slots=True)
class Clients:
    """fleets: processes with the devices, one for each node; sender: one more, with a device on the first node."""

    network: DeviceNetwork
    fleets: list[FleetProcess]
    sender: FleetProcess
    numbers: Sequence[str]

    async def forget(self) -> None:
        """Count from here."""
        await asyncio.gather(*(fleet.ask("forget") for fleet in (*self.fleets, self.sender)))

    async def delivered(self) -> int:
        """Messages since `forget`. Raises `Failed` for what was repeated or damaged, and for lost connections."""
        counts = await asyncio.gather(*(fleet.counts() for fleet in self.fleets))
        for count in counts:
            if count["repeats"] or count["wrong"] or count["failures"]:
                raise Failed(f"repeated, damaged or disconnected: {count}")
        return sum(count["delivered"] - count["others"] for count in counts)

    async def latencies(self) -> list[float]:
        """Seconds of every delivery since `forget`."""
        found = await asyncio.gather(*(fleet.take_latencies() for fleet in self.fleets))
        return [milliseconds / 1000 for milliseconds in itertools.chain(*found)]

    async def send(self, some: Sequence[str], *, rate: float, count: int, size: int, **more: Any) -> Mapping[str, Any]:
        """Send so many to these in turn, and see that all arrived once. Raises `Failed`."""
        await self.forget()
        routes = [(SENDER, number) for number in some]
        said = await self.sender.send(routes, rate=rate, count=count, size=size, **more)
        if said["refused"]:
            raise Failed(f"refused: {said['refused']}")
        await self.until_delivered(count)
        return said

    async def until_delivered(self, count: int) -> float:
        """Wait for so many since `forget`; the seconds that took. Raises `Failed` when they do not come."""
        began, arrived = time.monotonic(), 0
        while time.monotonic() < began + PATIENCE:
            arrived = await self.delivered()
            if arrived >= count:
                break
            await asyncio.sleep(0.02)
        if arrived != count:
            raise Failed(f"{arrived} of {count} arrived")
        return time.monotonic() - began


async def connect(network: DeviceNetwork, count: int, transport: str = TCP) -> Clients:
    """So many clients, on as few processes as can hold them, and the sender. Each node has one process's clients."""
    each = most_connections()
    some = numbers(count)
    print(f"    registering {count:,} devices ...", flush=True)
    tokens = await network.register([*some, SENDER])
    fleets = []
    for index, start in enumerate(range(0, count, each)):
        fleet = await network.fleet()
        fleets.append(fleet)
        part = some[start : start + each]
        seconds = await network.attach(fleet, {number: tokens[number] for number in part}, index, transport)
        print(f"    {start + len(part):,} connected, these in {seconds:.1f} s", flush=True)
    sender = await network.fleet("sender")
    await network.attach(sender, {SENDER: tokens[SENDER]})
    return Clients(network, fleets, sender, some)
