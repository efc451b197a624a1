"""Numbers of robots, sessions with them, and their receipts."""

from __future__ import annotations

from handset.devices.device import Device
from tests.handset.harness import Bench
from tests.handset.scripted import Business

READER, ECHO, SLOW, QUIET = "15550110001", "15550140001", "15550150001", "15550120001"

NULL = b'{"type":"null"}'


async def device_of(world: Bench, number: str) -> Device:
    """Return the stored device of a number."""
    return next(device for device in await world.devices() if device.number == number)


def receipts(world: Bench) -> list[tuple[str, str]]:
    """Return (kind, message id) of the receipts that reached the network, in order."""
    return [(frame.kind, ref) for frame in world.network.sends for ref in frame.refs]


async def begin(world: Bench, business: Business, number: str) -> None:
    """Open a session with a first message that is not shown. The device completes the key exchange with the next."""
    business.open(await device_of(world, number), world.keys[number])
    await world.network.until_acked(world.network.deliver(business.seal_raw(number, NULL, "first")))
