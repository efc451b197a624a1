"""Connected devices, and one that sends to them. Everything sent must arrive, once and undamaged."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.devices.network import DeviceNetwork, most_connections, numbers
from benchmarks.rig.run import RunFailed
from harness.fleet_device import TCP
from harness.fleet_process import FleetProcess

SENDER = "15559999999"
# Envelopes per second with which each device receives its first one.
FIRST_RATE = 1000.0
# Seconds within which the last deliveries must arrive.
TIMEOUT = 60.0


@dataclasses.dataclass(slots=True)
class Clients:
    """Connected devices and their sender."""

    network: DeviceNetwork
    fleets: list[FleetProcess]  # processes with the devices, one for each node
    sender: FleetProcess  # process with one more device, on the first node
    numbers: Sequence[str]

    async def reset(self) -> None:
        """Reset all counters."""
        await asyncio.gather(*(fleet.request("reset") for fleet in (*self.fleets, self.sender)))

    async def delivered(self) -> int:
        """Return the messages delivered since `reset`.

        Raises `RunFailed` for repeated or damaged ones and lost connections.
        """
        counts = await asyncio.gather(*(fleet.counts() for fleet in self.fleets))
        for count in counts:
            if count["repeats"] or count["wrong"] or count["failures"]:
                raise RunFailed(f"repeated, damaged or disconnected: {count}")
        return sum(count["delivered"] - count["others"] for count in counts)

    async def latencies(self) -> list[float]:
        """Return the latency of every delivery since `reset`, in seconds."""
        found = await asyncio.gather(*(fleet.take_latencies() for fleet in self.fleets))
        return [milliseconds / 1000 for milliseconds in itertools.chain(*found)]

    async def send(self, some: Sequence[str], *, rate: float, count: int, size: int, **more: Any) -> Mapping[str, Any]:
        """Send `count` messages to these numbers in round robin, and wait until each has arrived once.

        Raises `RunFailed`.
        """
        await self.reset()
        routes = [(SENDER, number) for number in some]
        said = await self.sender.send(routes, rate=rate, count=count, size=size, **more)
        if said["refused"]:
            raise RunFailed(f"refused: {said['refused']}")
        await self.until_delivered(count)
        return said

    async def until_delivered(self, count: int) -> float:
        """Wait for `count` deliveries since `reset`; return the seconds. Raises `RunFailed` when they do not arrive."""
        began, arrived = time.monotonic(), 0
        while time.monotonic() < began + TIMEOUT:
            arrived = await self.delivered()
            if arrived >= count:
                break
            await asyncio.sleep(0.02)
        if arrived != count:
            raise RunFailed(f"{arrived} of {count} arrived")
        return time.monotonic() - began


async def connect(network: DeviceNetwork, count: int, transport: str = TCP) -> Clients:
    """Connect `count` devices in as few processes as possible, one for each node, and the sender."""
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
