"""A person's own number: the fleet of its one device, for a terminal and for a page."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from handset import errors
from handset.application import Application
from handset.devices import keys
from handset.devices.context import FleetContext
from handset.devices.device import Device, DeviceObserver
from handset.devices.prekey_refill import PreKeyRefill
from handset.devices.prekey_rotation import PreKeyRotation
from handset.devices.registration import DeviceRegistry
from handset.fleet import Fleet
from tidings.aio.service import Service
from tidings.client.http import NetworkApi
from tidings.client.transports import Dial
from tidings.storage.handset import devices
from tidings.wire import addresses

PREFIX = "handset-"  # prefix of the names of these fleets
ONE_TIME_PREKEYS = 100
KYBER_PREKEYS = 50


def digits_of(typed: str) -> str:
    """Return the digits of a number as a person writes it; empty when it is not a phone number."""
    digits = "".join(c for c in typed if c not in "+ -().")
    return digits if addresses.is_number(digits) else ""


def fleet_of(number: str) -> str:
    """Return the name of the number's fleet in the store and of its lock."""
    return f"{PREFIX}{number}"


def log_path(directory: Path, number: str) -> Path:
    """Return the path of the record of shown messages of a number in a terminal."""
    return directory / f"{fleet_of(number)}.jsonl"


async def load(context: FleetContext, number: str) -> Device:
    """Return the stored device of a number, or a new one. Raises `AlreadyRunning` when another fleet has it."""
    async with context.database.reading() as connection:
        row = await devices.find(connection, number)
    if row is None:
        return keys.new_device(number)
    if row.fleet != context.name:
        raise errors.taken(number, row.fleet)
    return context.sealer.device(row)


async def save(context: FleetContext, device: Device) -> None:
    """Store the device's token."""
    async with context.database.transaction() as connection:
        await devices.save(connection, [context.sealer.device_row(device, context.name)])


async def register(
    registry: DeviceRegistry, device: Device, *, code: str = "", registration_key: str = "", pin: str = ""
) -> None:
    """Register the device with a code or with the registration key. Raises as `NetworkApi.register` does."""
    await registry.register(
        device,
        one_time=ONE_TIME_PREKEYS,
        kyber_one_time=KYBER_PREKEYS,
        code=code,
        registration_key=registration_key,
        pin=pin,
    )


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class OwnNumber:
    """Registered device of a person, with its connection."""

    context: FleetContext
    device: Device
    api: NetworkApi
    _: dataclasses.KW_ONLY
    # Registry of the number; `None` for a new one.
    known: dataclasses.InitVar[DeviceRegistry | None] = None
    registry: DeviceRegistry = dataclasses.field(init=False)

    def __post_init__(self, known: DeviceRegistry | None) -> None:
        self.registry = known or DeviceRegistry(self.context, self.api)

    def connect(
        self, application: Application, dial: Dial, observers: Sequence[DeviceObserver]
    ) -> tuple[Fleet, Sequence[Service]]:
        """Return the fleet, and the services to run: the fleet is the last of them.

        observers: observers of the fleet in addition to the refill of pre-keys
        """
        fleet = Fleet(self.context, [self.device], application, dials=[dial], api=self.api)
        refill = PreKeyRefill(self.registry, one_time=ONE_TIME_PREKEYS, kyber_one_time=KYBER_PREKEYS)
        rotation = PreKeyRotation(self.registry, {self.device.number: self.device})
        for observer in (refill, *observers):
            fleet.observe(observer)
        services: Sequence[Service] = [refill, rotation, fleet]
        return fleet, services
