"""Handset in a terminal: shows received messages and sends typed ones."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from handset import own_number
from handset.devices import lock
from handset.devices.context import FleetContext
from handset.devices.device import Device, DeviceObserver
from handset.devices.registration import DeviceRegistry
from handset.devices.row_sealer import RowSealer
from handset.own_number import OwnNumber
from handset.settings import FAMILY, TerminalSettings
from handset.shown_log import ShownLog
from handset.terminal import keyboard
from handset.terminal.console import TerminalConsole, Write, sentence
from handset.terminal.conversation import HELP, TerminalConversation
from handset.terminal.files import ConversationFiles
from handset.terminal.keyboard import Keyboard
from handset.terminal.screen import Screen
from tidings.aio.clock import SystemClock
from tidings.aio.service import Service, wait_for
from tidings.client import transports
from tidings.client.errors import (
    ClientError,
    LockedNumber,
    NetworkUnavailable,
    NumberOfBusiness,
    TooSoon,
    Unauthorized,
    WrongCode,
    WrongPin,
)
from tidings.client.http import NetworkApi
from tidings.installation import network_access
from tidings.storage import schema
from tidings.storage.database import Database
from tidings.storage.handset import groups, inbox

RETRY_SECONDS = 2.0


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class NumberRegistration:
    """Registers a number, and asks for codes and PINs until it is registered or the input ends."""

    registry: DeviceRegistry
    api: NetworkApi
    console: TerminalConsole
    _: dataclasses.KW_ONLY
    key: str  # registration key; empty for none
    pin: str = ""  # PIN of the registration lock; empty for none

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
            except NetworkUnavailable as error:
                if not was_away:
                    self.console.write(f"{sentence(error)}. Trying again.")
                was_away = True
                await wait_for(stop, RETRY_SECONDS)
            except Unauthorized as error:
                if not self.key or isinstance(error, NumberOfBusiness):
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
        await own_number.register(self.registry, device, code=code, registration_key=registration_key, pin=self.pin)
        self.console.write(f"+{device.number} is registered.")


RECENT = 1000  # recent messages whose senders count as peers at the start


async def run_terminal(
    number: str,
    settings: TerminalSettings,
    stop: asyncio.Event,
    *,
    typed: Keyboard | None = None,
    write: Write = keyboard.write_line,
) -> int:
    """Run the handset of this number until `stop`, `/quit` or the end of input. Returns the exit status."""
    digits = own_number.digits_of(number)
    if not digits:
        write(f"{number!r} is not a phone number: 7 to 15 digits, like +15550100001.")
        return 2
    fleet, clock = own_number.fleet_of(digits), SystemClock()
    database = Database(settings.database, FAMILY)
    context = FleetContext(fleet, database, RowSealer(settings.secrets.handset_key.keys[0]), clock)
    shown_log: ShownLog | None = None
    try:
        with lock.only_one(settings.data_dir, fleet), keyboard.opened(typed) as lines:
            shown_log = ShownLog(own_number.log_path(settings.data_dir, digits), clock)
            await schema.prepare(database, migrate=True)
            tls = network_access.make_context(settings.network_files, *settings.endpoints())
            async with NetworkApi(settings.http_url, tls=tls) as api:
                console = TerminalConsole(lines, write, stop)
                terminal = Terminal(digits, context, settings, api=api, console=console, shown_log=shown_log)
                return await terminal.run()
    except ClientError as error:
        write(f"{sentence(error)}.")
        return 1
    finally:
        if shown_log is not None:
            shown_log.close()
        await database.close()


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Terminal(DeviceObserver):
    """Handset of one number, with its store, its screen and its connection."""

    number: str
    context: FleetContext
    settings: TerminalSettings
    _: dataclasses.KW_ONLY
    api: NetworkApi
    console: TerminalConsole
    shown_log: ShownLog
    _status: int = dataclasses.field(default=0, init=False)

    async def run(self) -> int:
        """Run until `stop`, `/quit` or the end of input. Returns the exit status."""
        device = await own_number.load(self.context, self.number)
        own = OwnNumber(self.context, device, self.api)
        registration = NumberRegistration(
            own.registry,
            self.api,
            self.console,
            key=self.settings.secrets.registration_key,
            pin=self.settings.pin,
        )
        if device.token is None and not await registration.run(device):
            return 1
        files = ConversationFiles(self.api, device, folder=self.settings.files, write=self.console.write)
        screen = await self._open_screen(files)
        dial = transports.over_http(self.settings.http_url, tls=self.api.tls)
        fleet, services = own.connect(screen, dial, [screen, self])
        conversation = TerminalConversation(
            self.number, fleet, self.console, screen=screen, files=files, name=self.settings.name
        )
        self.console.write(f"This is +{self.number}. {HELP}")
        await self._run_until_end(services, conversation)
        if device.token is None:
            await own_number.save(self.context, device)
        return self._status

    async def _run_until_end(self, services: Sequence[Service], conversation: TerminalConversation) -> None:
        ending = asyncio.Event()
        running = [asyncio.create_task(service.run(ending)) for service in services]
        reading = asyncio.create_task(conversation.run())
        stopping = asyncio.create_task(self.console.stop.wait())
        try:
            await asyncio.wait([*running, reading, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, stopping):
                task.cancel()
            ending.set()
            await asyncio.gather(*running)
        if reading.done() and not reading.cancelled():
            reading.result()

    async def _open_screen(self, files: ConversationFiles) -> Screen:
        async with self.context.database.reading() as connection:
            recent = await inbox.list_recent(connection, self.context.name, RECENT)
            rows = await groups.list_groups(connection, self.number)
        peers = {peer for _, peer, _ in recent}
        subjects = {row.group_id: row.subject for row in rows}
        return Screen(self.shown_log, self.console.write, files, peers=peers, groups=subjects)

    # Called by the fleet.

    def unauthorized(self, device: Device) -> None:
        device.token = None
        self._leave(
            f"The network no longer knows this registration of +{self.number}: start the program again to register."
        )

    def replaced(self, device: Device) -> None:
        self._leave("This number is now in use elsewhere.")

    def _leave(self, why: str) -> None:
        self.console.write(why)
        self._status = 1
        self.console.stop.set()
