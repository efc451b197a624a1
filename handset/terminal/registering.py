"""Registration of a terminal's number, with the registration key of this installation or with a typed code."""

from __future__ import annotations

import dataclasses

from handset.devices.device import Device
from handset.devices.registration import DeviceRegistry
from handset.terminal.console import TerminalConsole, sentence
from tidings.aio.service import wait_for
from tidings.client.errors import LockedNumber, NetworkAway, TooSoon, Unauthorized, WrongCode, WrongPin
from tidings.client.http import NetworkApi

ONE_TIME_PREKEYS = 100
KYBER_PREKEYS = 50
RETRY_SECONDS = 2.0


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class NumberRegistration:
    """Registers a number, and asks for codes and PINs until it is registered or the input ends."""

    registry: DeviceRegistry
    api: NetworkApi
    console: TerminalConsole
    _: dataclasses.KW_ONLY
    key: str  # registration key; empty for none
    pin: str = ""  # of the registration lock; empty for none

    async def run(self, device: Device) -> bool:
        """Register the number. Returns false when it was not registered."""
        stop, was_away, was_asked = self.console.stop, False, False
        code: str | None = None
        while not stop.is_set():
            try:
                if self.key:
                    await self._register(device, registration_key=self.key)
                    return True
                if not was_asked:
                    await self._request_code(device.number)
                    was_asked = True
                code = code or await self.console.ask("Code: ")
                if code is None:
                    return False
                if not (digits := "".join(code.split()).replace("-", "")):
                    code = None
                    continue
                await self._register(device, code=digits)
                return True
            except NetworkAway as error:
                if not was_away:
                    self.console.write(f"{sentence(error)}. Trying again.")
                was_away = True
                await wait_for(stop, RETRY_SECONDS)
            except Unauthorized as error:
                if not self.key:
                    # The number belongs to a business.
                    self.console.write(f"{sentence(error)}.")
                    return False
                # The network has a different registration key, so the key of this installation is useless.
                self.key = ""
            except WrongCode as error:
                self.console.write(f"{sentence(error)}.")
                code = None
            except (LockedNumber, WrongPin) as error:
                # The code was right, and remains valid.
                self.console.write(f"{sentence(error)}.")
                pin = await self.console.ask("PIN: ")
                if pin is None:
                    return False
                self.pin = "".join(pin.split())
            except TooSoon as error:
                self.console.write(f"{sentence(error)}.")
                return False
        return False

    async def _request_code(self, number: str) -> None:
        try:
            await self.api.request_code(number)
            self.console.write(f"The network has printed a code for +{number} into its log.")
        except TooSoon as error:
            self.console.write(f"{sentence(error)}: use that one.")

    async def _register(self, device: Device, *, code: str = "", registration_key: str = "") -> None:
        await self.registry.register(
            device,
            one_time=ONE_TIME_PREKEYS,
            kyber_one_time=KYBER_PREKEYS,
            code=code,
            registration_key=registration_key,
            pin=self.pin,
        )
        self.console.write(f"+{device.number} is registered.")
