"""Replacement of the lasting pre-keys of a fleet when they are a week old."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from handset.devices.device import Device
from handset.devices.registration import DeviceRegistry
from tidings.aio.service import wait_for
from tidings.client.errors import ClientError
from tidings.storage import outages

log = logging.getLogger(__name__)

INTERVAL = 3600.0  # seconds between two passes


class PreKeyRotation:
    """Service that rotates lasting pre-keys."""

    name = "rotation"

    def __init__(self, registry: DeviceRegistry, devices: Mapping[str, Device]) -> None:
        """Create the service.

        devices: of the fleet, by number
        """
        self._registry = registry
        self._devices = devices
        # Numbers that the network refused. They are not tried again by this process.
        self._refused: set[str] = set()

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
        """Rotate the keys of all devices that are due. Returns the number of devices. Raises `NetworkAway`."""
        rotated, after = 0, ""
        while not stop.is_set() and (page := await self._registry.list_due(after)):
            after = page[-1]
            due = [self._devices[number] for number in page if number in self._devices.keys() - self._refused]
            refused = await self._registry.rotate(due)
            self._refused.update(device.number for device in refused)
            rotated += len(due) - len(refused)
        if rotated:
            log.info("prekeys.rotated", extra={"devices": rotated})
        return rotated
