"""Replacement of the lasting pre-keys of a fleet when they are a week old."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Mapping

from handset.devices.device import Device
from handset.devices.registration import DeviceRegistry
from tidings.aio.service import wait_for
from tidings.client.errors import ClientError
from tidings.storage import outages

log = logging.getLogger(__name__)

INTERVAL = 3600.0  # seconds between two passes


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class PreKeyRotation:
    """Service that rotates lasting pre-keys."""

    name = "rotation"

    registry: DeviceRegistry
    devices: Mapping[str, Device]  # devices of the fleet, by number
    # Numbers that the network refused. They are not tried again by this process.
    _refused: set[str] = dataclasses.field(default_factory=set, init=False)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.run_once(stop)
            except ClientError as error:
                log.warning("prekeys.not_rotated", extra={"error": str(error)})
            except Exception as error:
                if not outages.is_outage(error):
                    raise
                log.warning("prekeys.not_rotated", extra={"error": repr(error)[:200]})
            await wait_for(stop, INTERVAL)

    async def run_once(self, stop: asyncio.Event) -> int:
        """Rotate the keys of all devices that are due. Returns the number of devices. Raises `NetworkUnavailable`."""
        rotated, after = 0, ""
        while not stop.is_set() and (page := await self.registry.list_due(after)):
            after = page[-1]
            due = [self.devices[number] for number in page if number in self.devices.keys() - self._refused]
            refused = await self.registry.rotate(due)
            self._refused.update(device.number for device in refused)
            rotated += len(due) - len(refused)
        if rotated:
            log.info("prekeys.rotated", extra={"devices": rotated})
        return rotated
