"""A handset in a terminal: shows messages as they come, sends what is typed."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from handset import composing, errors
from handset.devices import keys, lock
from handset.devices.device import Device
from handset.devices.prekey_refill import Refill
from handset.devices.prekey_rotation import Rotation
from handset.devices.registration import Enrolment
from handset.devices.vault import Vault
from handset.fleet import Fleet
from handset.settings import FAMILY, TerminalSettings
from handset.shown_log import ShownLog
from handset.terminal import commands, group_commands, keyboard
from handset.terminal.files import ConversationFiles
from handset.terminal.keyboard import Keyboard
from handset.terminal.screen import Screen, Write
from tidings.client import transports
from tidings.client.errors import ClientError, NetworkAway, TooSoon, Unauthorized, WrongCode
from tidings.client.http import NetworkApi
from tidings.runtime.clock import SystemClock
from tidings.runtime.service import wait_for
from tidings.storage import schema
from tidings.storage.database import Database
from tidings.storage.handset import devices, inbox
from tidings.storage.handset import groups as handset_groups
from tidings.wire import addresses

log = logging.getLogger(__name__)

ONE_TIME_PREKEYS = 100
KYBER_PREKEYS = 50
RETRY_SECONDS = 2.0
FAREWELL_SECONDS = 5.0  # for what was typed last to reach the network
RECENT = 1000  # messages whose senders count as peers at start

HELP = """Type a line to send it.  /to NUMBER writes to another number,  /help  shows all commands,  /quit  leaves."""
MORE_HELP = """/pick N                     answers with a row or a button of the last message that has some
/location LAT LON [NAME]    sends a place
/contact NAME NUMBER        sends a contact
/react EMOJI                reacts to the last message; without an emoji takes that back
/order CATALOGUE PRODUCT …  orders products
/send FILE [CAPTION]        sends a file; a name with spaces goes between quotes
/voice FILE                 sends an Ogg file with Opus as a voice message
/save [N]                   saves the last file that came, or file N
/reply TEXT                 answers the last message
/forward TEXT               sends it as forwarded from somebody else
/about CATALOGUE PRODUCT TEXT  asks about a product
/ad URL TEXT                writes as one who came by an advertisement
/form JSON                  sends a form that was filled in
/number NUMBER              tells the business another number
/unknown                    sends a type that the business does not know
/delete                     withdraws the last message that was sent"""


async def run_terminal(
    number: str,
    settings: TerminalSettings,
    stop: asyncio.Event,
    *,
    typed: Keyboard | None = None,
    write: Write = keyboard.write_line,
) -> int:
    """Be this number until `stop`, `/quit` or the end of input; returns the exit status."""
    digits = "".join(c for c in number if c not in "+ -().")
    if not addresses.is_number(digits):
        write(f"{number!r} is not a phone number: 7 to 15 digits, like +15550100001.")
        return 2
    fleet = f"handset-{digits}"
    database = Database(settings.database, FAMILY)
    shown_log: ShownLog | None = None
    try:
        with lock.only_one(settings.data_dir, fleet), keyboard.opened(typed) as lines:
            shown_log = ShownLog(settings.data_dir / f"{fleet}.jsonl", SystemClock())
            await schema.prepare(database, migrate=True)
            async with NetworkApi(settings.http_url) as api:
                terminal = _Terminal(digits, fleet, settings, database, api, lines, shown_log, write, stop)
                return await terminal.run()
    except ClientError as error:
        write(f"{_sentence(error)}.")
        return 1
    finally:
        if shown_log is not None:
            shown_log.close()
        await database.close()


class _Terminal:
    def __init__(
        self,
        number: str,
        fleet: str,
        settings: TerminalSettings,
        database: Database,
        api: NetworkApi,
        lines: Keyboard,
        shown_log: ShownLog,
        write: Write,
        stop: asyncio.Event,
    ) -> None:
        self._number = number
        self._fleet = fleet
        self._settings = settings
        self._database = database
        self._api = api
        self._lines = lines
        self._shown_log = shown_log
        self._write = write
        self._stop = stop
        self._vault = Vault(settings.master_key)
        self._enrolment = Enrolment(fleet, database, self._vault, api)
        self._status = 0

    async def run(self) -> int:
        device = await self._device()
        if device.token is None and not await self._register(device):
            return 1
        async with self._database.reading() as connection:
            recent = await inbox.list_recent(connection, self._fleet, RECENT)
            groups = await handset_groups.list_groups(connection, self._number)
        peers = list(dict.fromkeys(peer for _, peer, _ in recent))
        shelf = ConversationFiles(self._api, device, self._settings.files, self._write)
        screen = Screen(self._shown_log, self._write, peers, shelf, {group.group_id: group.subject for group in groups})
        refill = Refill(self._enrolment, one_time=ONE_TIME_PREKEYS, kyber_one_time=KYBER_PREKEYS)
        rotation = Rotation(self._enrolment, {device.number: device})
        fleet = Fleet(
            self._fleet,
            self._database,
            [device],
            self._vault,
            screen,
            [transports.over_http(self._settings.http_url)],
            prekeys_low=refill.want,
            unauthorized=self._void,
            replaced=lambda _: self._leave("This number is in use elsewhere now."),
            connected=screen.connected,
            api=self._api,
        )
        self._write(f"This is +{self._number}. {HELP}")
        ending = asyncio.Event()
        running = [asyncio.create_task(service.run(ending)) for service in (refill, rotation, fleet)]
        reading = asyncio.create_task(self._read(fleet, screen, shelf))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([*running, reading, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, stopping):
                task.cancel()
            ending.set()
            await asyncio.gather(*running)
        if device.token is None:
            async with self._database.transaction() as connection:
                await devices.save(connection, [self._vault.device_row(device, self._fleet)])
        return self._status

    async def _device(self) -> Device:
        async with self._database.reading() as connection:
            row = await devices.find(connection, self._number)
        if row is None:
            return keys.new_device(self._number)
        if row.fleet != self._fleet:
            raise errors.AlreadyRunning(f"+{self._number} belongs to the {row.fleet} of this data directory")
        return self._vault.device(row)

    async def _register(self, device: Device) -> bool:
        """With the registration key if there is one, else with a code; false when nobody types it."""
        key, told, asked = self._settings.registration_key, False, False
        while not self._stop.is_set():
            try:
                if key:
                    await self._enrol(device, registration_key=key)
                    return True
                if not asked:
                    asked = await self._ask_for_code()
                code = await self._type("Code: ")
                if code is None:
                    return False
                await self._enrol(device, code="".join(code.split()).replace("-", ""))
                return True
            except NetworkAway as error:
                if not told:
                    self._write(f"{_sentence(error)}. Trying again until it is back.")
                told = True
                await wait_for(self._stop, RETRY_SECONDS)
            except Unauthorized:
                # A key of another installation; the network has one of its own.
                key = ""
            except WrongCode as error:
                self._write(f"{_sentence(error)}.")
        return False

    async def _ask_for_code(self) -> bool:
        try:
            await self._api.request_code(self._number)
            self._write(f"The network has printed a code for +{self._number} into its log.")
        except TooSoon as error:
            self._write(f"{_sentence(error)}: use that one.")
        return True

    async def _enrol(self, device: Device, *, code: str = "", registration_key: str = "") -> None:
        await self._enrolment.register(
            device,
            one_time=ONE_TIME_PREKEYS,
            kyber_one_time=KYBER_PREKEYS,
            code=code,
            registration_key=registration_key,
        )
        self._write(f"+{self._number} is registered.")

    async def _type(self, prompt: str) -> str | None:
        """A line, or `None` at the end of input or of us."""
        line = asyncio.ensure_future(self._lines.read(prompt))
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([line, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if line.done():
            return line.result()
        line.cancel()
        return None

    def _void(self, device: Device) -> None:
        device.token = None
        self._leave(f"The network no longer knows this registration of +{self._number}: start again to register anew.")

    def _leave(self, why: str) -> None:
        self._write(why)
        self._status = 1
        self._stop.set()

    async def _read(self, fleet: Fleet, screen: Screen, shelf: ConversationFiles) -> None:
        """Carry out what is typed until `/quit` or the end of input."""
        while True:
            line = await self._lines.read("> ")
            if line is None or line.strip() == "/quit":
                break
            await self._obey(line.strip(), fleet, screen, shelf)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await fleet.wait_until_sent()

    async def _obey(self, line: str, fleet: Fleet, screen: Screen, shelf: ConversationFiles) -> None:
        command, _, argument = line.partition(" ")
        if not line:
            return
        if command == "/help":
            self._write(f"{HELP}\n{MORE_HELP}\n{group_commands.HELP}")
        elif command == "/to":
            peer = argument.replace(" ", "").lstrip("+")
            if addresses.is_number(peer):
                screen.to = peer
                self._write(f"What you type goes to +{peer}.")
            else:
                self._write("Use /to NUMBER, like /to +15550000000.")
        elif command == "/group":
            await group_commands.Commands(fleet.groups, self._number, screen).obey(argument.strip())
        elif command == "/save":
            try:
                await shelf.save(argument.strip())
            except (commands.Misused, ClientError) as error:
                self._write(f"! not saved: {error}" if isinstance(error, ClientError) else str(error))
        elif not screen.to:
            known = ", ".join(f"+{peer}" for peer in sorted(screen.peers))
            self._write(f"To whom? Choose with /to NUMBER{f' ({known})' if known else ''}.")
        else:
            await self._send(line, fleet, screen, shelf)

    async def _send(self, line: str, fleet: Fleet, screen: Screen, shelf: ConversationFiles) -> None:
        peer, (command, _, argument) = screen.to, line.partition(" ")
        thread = screen.thread(peer)
        if len(line) > composing.MAX_TEXT:
            self._write(f"! not sent: at most {composing.MAX_TEXT:,} characters go into one message.")
            return
        try:
            if command in ("/send", "/voice"):
                content = await shelf.compose(command, argument)
            else:
                author = thread.author or peer
                content = commands.compose(line, author, thread) if line.startswith("/") else composing.text(line)
            if peer in screen.groups:
                thread.sent = await fleet.send_to_group(self._number, peer, content, self._settings.name)
            else:
                thread.sent = await fleet.send_content(self._number, peer, content, self._settings.name)
                screen.peers.add(peer)
            screen.sent(thread.sent, line)
        except KeyError:
            self._write(f"There is no {line.split()[0]}. {HELP}")
        except commands.Misused as error:
            self._write(str(error))
        except commands.NothingToSend as done:
            screen.say(f"  {done}")
        except ClientError as error:
            self._write(f"! not sent: {error}")


def _sentence(error: ClientError) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]
