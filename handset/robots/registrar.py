"""Registration of robots: of all of them at the start, and again of those whose token the network does not know."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence

from handset.devices import keys
from handset.devices.device import Device, DeviceObserver
from handset.devices.registration import DeviceRegistry
from handset.robots import behaviours
from handset.robots.behaviours import Behaviour
from tidings.aio.service import Wakeup, wait_for
from tidings.client.errors import NetworkUnavailable
from tidings.testing import numbers

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
GATHER_SECONDS = 0.2  # devices that fail within this time are registered together


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class RobotRegistrar:
    """Registration of the robots of one process."""

    registry: DeviceRegistry
    registration_key: str
    _: dataclasses.KW_ONLY
    one_time: int  # one-time pre-keys per robot
    block: str  # number that robots of the blocking kind block
    prefixes: Sequence[str] = behaviours.PREFIXES  # prefixes of the robots' numbers

    async def register_all(self, wanted: Sequence[str], stop: asyncio.Event) -> list[Device]:
        """Return the devices of these numbers and of enrolled test numbers, all registered.

        Waits as long as the network is unavailable. Some are not registered if `stop` is set. Raises `Unauthorized`
        when the registration key is wrong, and `AlreadyRunning` when another fleet of the store has one of the numbers.
        """
        known = await self.registry.load()
        await self.registry.require_free(number for number in wanted if number not in known)
        # Test numbers are registered on demand. Those of an earlier run may have envelopes in their outboxes.
        enrolled = [number for number in known if numbers.is_test_number(number)]
        names = dict.fromkeys((*wanted, *enrolled))
        devices = [known.get(number) or keys.new_device(number) for number in names]
        await self.register(devices, stop)
        return devices

    async def register(self, devices: Sequence[Device], stop: asyncio.Event) -> None:
        """Register the devices without a token, and make those of the blocking kind block."""
        missing = [device for device in devices if device.token is None]
        await self.registry.register_many(
            missing, one_time=self.one_time, registration_key=self.registration_key, stop=stop
        )
        blockers = [device for device in devices if self._behaviour_of(device) is Behaviour.BLOCKS]
        while not stop.is_set():
            try:
                await self.registry.block([device for device in blockers if device.token], self.block)
                return
            except NetworkUnavailable as error:
                log.warning("blocking.waiting", extra={"error": str(error)})
                await wait_for(stop, RETRY_SECONDS)

    def is_online(self, device: Device) -> bool:
        """Return whether this robot ever logs in."""
        behaviour = self._behaviour_of(device)
        return numbers.is_test_number(device.number) or (behaviour is not None and behaviour.is_online)

    def _behaviour_of(self, device: Device) -> Behaviour | None:
        return behaviours.behaviour_of(device.number, self.prefixes)


@dataclasses.dataclass(eq=False, repr=False)
class Reregistration(DeviceObserver):
    """Service that registers robots again whose token the network does not know, and logs them in."""

    name = "reregistration"

    registrar: RobotRegistrar
    log_in: Callable[[Device], None]
    _: dataclasses.KW_ONLY
    # robots that never log in and therefore never notice that the network has lost them
    offline: dataclasses.InitVar[Sequence[Device]] = ()

    def __post_init__(self, offline: Sequence[Device]) -> None:
        # Bounded by the number of robots.
        self._waiting: dict[str, Device] = {}
        self._renewed: set[str] = set()
        self._offline = list(offline)
        self._wakeup = Wakeup()

    def unauthorized(self, device: Device) -> None:
        """Queue the robot, but only once: a second time means that another client has registered its number."""
        if device.number in self._renewed:
            log.error("robot.taken_over", extra={"number": device.number})
            return
        self._renewed.add(device.number)
        self._waiting[device.number] = device
        self._wakeup.wake()

    async def run(self, stop: asyncio.Event) -> None:
        with self._wakeup.woken_by(stop):
            while not stop.is_set():
                await self._wakeup.wait()
                if self._waiting and not await wait_for(stop, GATHER_SECONDS):
                    await self.run_once(stop)

    async def run_once(self, stop: asyncio.Event) -> None:
        """Register all waiting robots and log them in. The first call also registers the robots that never log in."""
        devices = [*self._waiting.values(), *self._offline]
        self._waiting.clear()
        self._offline.clear()
        for device in devices:
            device.token = None
        await self.registrar.register(devices, stop)
        for device in devices:
            if device.token is not None and self.registrar.is_online(device):
                self.log_in(device)
