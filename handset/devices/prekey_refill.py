"""Upload of more one-time pre-keys when the network announces that a device has few left."""

from __future__ import annotations

import asyncio
import logging

from handset.devices.device import Device, DeviceObserver
from handset.devices.registration import DeviceRegistry
from tidings.aio.service import Wakeup, wait_for
from tidings.client.errors import ClientError
from tidings.storage import outages

log = logging.getLogger(__name__)

AT_A_TIME = 50  # devices whose keys go into one transaction
RETRY_SECONDS = 2.0


class PreKeyRefill(DeviceObserver):
    """Service that keeps each device at `one_time` and `kyber_one_time` pre-keys.

    At most one request per device waits.
    """

    name = "refill"

    def __init__(self, registry: DeviceRegistry, *, one_time: int, kyber_one_time: int) -> None:
        self._registry = registry
        self._one_time = one_time
        self._kyber_one_time = kyber_one_time
        self._wanted: dict[str, tuple[Device, int, int]] = {}
        self._wakeup = Wakeup()

    def prekeys_low(self, device: Device, remaining: int, kyber_remaining: int) -> None:
        count, kyber = self._one_time - remaining, self._kyber_one_time - kyber_remaining
        if count > 0 or kyber > 0:
            self._wanted[device.number] = (device, max(0, count), max(0, kyber))
            self._wakeup.wake()

    async def run(self, stop: asyncio.Event) -> None:
        with self._wakeup.woken_by(stop):
            while not stop.is_set():
                if not self._wanted:
                    await self._wakeup.wait()
                elif not await self.run_once():
                    await wait_for(stop, RETRY_SECONDS)

    async def run_once(self) -> bool:
        """Refill up to `AT_A_TIME` devices. Returns false when it failed and should be retried."""
        chosen = [self._wanted.pop(number) for number in list(self._wanted)[:AT_A_TIME]]
        try:
            await self._registry.refill(chosen)
        except ClientError as error:
            # The network announces it again at the next session that takes a key.
            log.warning("prekeys.not_uploaded", extra={"devices": len(chosen), "error": str(error)})
            return False
        except Exception as error:
            if not outages.is_outage(error):
                raise
            log.warning("prekeys.not_stored", extra={"devices": len(chosen), "error": repr(error)[:200]})
            return False
        log.debug("prekeys.uploaded", extra={"devices": len(chosen)})
        return True
