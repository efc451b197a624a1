"""Sees to it that all robots are registered, and registers anew those whose token the network does not know."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from handset.devices import keys
from handset.devices.device import Device
from handset.devices.registration import Enrolment
from handset.robots import behaviours
from handset.robots.behaviours import Behaviour
from tidings.client.errors import NetworkAway
from tidings.runtime.service import Wakeup, wait_for

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
GATHER_SECONDS = 0.2  # what comes within this time is registered together


class Roster:
    """The robots of one process."""

    name = "roster"

    def __init__(
        self,
        enrolment: Enrolment,
        registration_key: str,
        *,
        one_time: int,
        block: str,
        prefixes: Sequence[str] = behaviours.PREFIXES,
    ) -> None:
        """block: whom those of the blocking kind block; prefixes: of the robots' numbers."""
        self._enrolment = enrolment
        self._registration_key = registration_key
        self._one_time = one_time
        self._block = block
        self._prefixes = prefixes
        # Bounded by the number of robots.
        self._void: dict[str, Device] = {}
        self._renewed: set[str] = set()
        self._offline: list[Device] = []
        self._wakeup = Wakeup()
        self.log_in: Callable[[Device], None] | None = None

    async def enrol(self, wanted: Sequence[str], stop: asyncio.Event) -> list[Device]:
        """The devices of these numbers, all registered; waits for the network as long as it is away.

        Incomplete when `stop` was set. Raises `Unauthorized` when the registration key is wrong.
        """
        known = await self._enrolment.load()
        devices = [known.get(number) or keys.new_device(number) for number in wanted]
        await self._register(devices, stop)
        self._offline = [device for device in devices if not self.is_online(device)]
        return devices

    def void(self, device: Device) -> None:
        """The network does not know this token. Registered anew once; the next time it is somebody else's number."""
        if device.number in self._renewed:
            log.error("robot.taken_over", extra={"number": device.number})
            return
        self._renewed.add(device.number)
        self._void[device.number] = device
        self._wakeup.kick()

    async def run(self, stop: asyncio.Event) -> None:
        """Register anew what is void, until `stop`."""
        stopping = asyncio.ensure_future(stop.wait())
        stopping.add_done_callback(lambda _: self._wakeup.kick())
        try:
            while not stop.is_set():
                await self._wakeup.wait()
                if self._void and not await wait_for(stop, GATHER_SECONDS):
                    await self.run_once(stop)
        finally:
            stopping.cancel()

    async def run_once(self, stop: asyncio.Event) -> None:
        """Register all that are void now, and log them in.

        Those that never log in would never find out that the network has lost them: the first time, they go along.
        """
        devices = [*self._void.values(), *self._offline]
        self._void.clear()
        self._offline.clear()
        for device in devices:
            device.token = None
        await self._register(devices, stop)
        for device in devices:
            if device.token is not None and self.log_in is not None and self.is_online(device):
                self.log_in(device)

    async def _register(self, devices: Sequence[Device], stop: asyncio.Event) -> None:
        missing = [device for device in devices if device.token is None]
        await self._enrolment.register_many(
            missing, one_time=self._one_time, registration_key=self._registration_key, stop=stop
        )
        blockers = [device for device in devices if self._behaviour_of(device) is Behaviour.BLOCKS]
        while not stop.is_set():
            try:
                await self._enrolment.block([device for device in blockers if device.token], self._block)
                return
            except NetworkAway as error:
                log.warning("blocking.waiting", extra={"error": str(error)})
                await wait_for(stop, RETRY_SECONDS)

    def is_online(self, device: Device) -> bool:
        """Whether this robot ever logs in."""
        behaviour = self._behaviour_of(device)
        return behaviour is not None and behaviour.is_online

    def _behaviour_of(self, device: Device) -> Behaviour | None:
        return behaviours.behaviour_of(device.number, self._prefixes)
