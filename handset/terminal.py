"""A handset in a terminal: shows messages as they come, sends what is typed."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
from collections.abc import Callable, Sequence

from handset import behaviours, commands, composing, errors, keyboard, keys, lock, reading
from handset.application import Notice
from handset.behaviours import Action, Behaviour, Message
from handset.devices import Device
from handset.enrolment import Enrolment
from handset.fleet import Fleet
from handset.keyboard import Keyboard
from handset.network_api import NetworkApi
from handset.refill import Refill
from handset.services import websocket_dial
from handset.settings import FAMILY, TerminalSettings
from handset.shown_log import ShownLog
from handset.vault import Vault
from tidings.runtime.clock import SystemClock
from tidings.runtime.lru import LRU
from tidings.runtime.service import wait_for
from tidings.storage import handset as storage
from tidings.storage import schema
from tidings.storage.database import Database

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
/delete                     withdraws the last message that was sent"""

Write = Callable[[str], None]


class Screen:
    """The application of one handset.

    peers: who has written to it or was written to. to: who gets the next line; empty when that is to be chosen.
    """

    def __init__(self, shown_log: ShownLog, write: Write, peers: Sequence[str]) -> None:
        self._log = shown_log
        self._write = write
        self._was_connected: bool | None = None
        self.peers = set(peers)
        self.to = peers[0] if len(self.peers) == 1 else ""
        self._threads: LRU[str, commands.Thread] = LRU(RECENT)

    def actions(self, message: Message) -> Sequence[Action]:
        return behaviours.actions(Behaviour.READS, message)

    def show(self, messages: Sequence[Message]) -> None:
        # On record first: killed in between, a message is never on the screen twice.
        self._log.append(messages)
        for message in messages:
            if message.peer not in self.peers:
                self.peers.add(message.peer)
                self.to = message.peer if len(self.peers) == 1 else self.to
            when = datetime.datetime.fromtimestamp(message.time / 1000).strftime("%H:%M:%S")
            self._write(f"{when} +{printable(message.peer)}: {printable(self._words(message))}")

    def thread(self, peer: str) -> commands.Thread:
        """What the last messages of a peer allow."""
        thread = self._threads.get(peer)
        if thread is None:
            thread = commands.Thread()
            self._threads.put(peer, thread)
        return thread

    def _words(self, message: Message) -> str:
        thread = self.thread(message.peer)
        thread.newest = message.id
        if message.type == "text":
            return message.text
        read = reading.read(message.type, message.raw)
        if read.choices:
            thread.choices, thread.offered = read.choices, message.id
            read.say("(/pick N answers)")
        return "\n  ".join(read.lines)

    def list_shown(self, messages: Sequence[Message]) -> set[tuple[str, str]]:
        return self._log.list_shown(messages)

    def notice(self, notice: Notice) -> None:
        peer = f"+{printable(notice.peer)}"
        lines = {
            "delivered": f"  delivered to {peer}",
            "read": f"  read by {peer}",
            "expired": f"! {peer} was away too long; a message was never delivered",
            "refused": f"! not sent to {peer}: {notice.detail}",
            "identity": f"! {peer} has a new identity key: it has been registered anew",
            "undecryptable": f"! a message from {peer} could not be decrypted",
        }
        self._write(lines.get(notice.event, f"  {notice.event} {peer}"))

    def connected(self, up: bool, reason: str) -> None:
        if up != self._was_connected:
            self._write("Connected." if up else f"The network is away ({reason}). Trying again until it is back.")
        self._was_connected = up


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
    if not (digits.isascii() and digits.isdigit() and 7 <= len(digits) <= 15):
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
    except errors.HandsetError as error:
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
            recent = await storage.list_recent(connection, self._fleet, RECENT)
        peers = list(dict.fromkeys(peer for _, peer, _ in recent))
        screen = Screen(self._shown_log, self._write, peers)
        refill = Refill(self._enrolment, one_time=ONE_TIME_PREKEYS, kyber_one_time=KYBER_PREKEYS)
        fleet = Fleet(
            self._fleet,
            self._database,
            [device],
            self._vault,
            screen,
            [websocket_dial(self._settings.http_url)],
            prekeys_low=refill.want,
            unauthorized=self._void,
            replaced=lambda _: self._leave("This number is in use elsewhere now."),
            connected=screen.connected,
        )
        self._write(f"This is +{self._number}. {HELP}")
        ending = asyncio.Event()
        running = [asyncio.create_task(service.run(ending)) for service in (refill, fleet)]
        reading = asyncio.create_task(self._read(fleet, screen))
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
                await storage.save_devices(connection, [self._vault.device_row(device, self._fleet)])
        return self._status

    async def _device(self) -> Device:
        async with self._database.reading() as connection:
            row = await storage.find_device(connection, self._number)
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
            except errors.NetworkAway as error:
                if not told:
                    self._write(f"{_sentence(error)}. Trying again until it is back.")
                told = True
                await wait_for(self._stop, RETRY_SECONDS)
            except errors.Unauthorized:
                # A key of another installation; the network has one of its own.
                key = ""
            except errors.WrongCode as error:
                self._write(f"{_sentence(error)}.")
        return False

    async def _ask_for_code(self) -> bool:
        try:
            await self._api.request_code(self._number)
            self._write(f"The network has printed a code for +{self._number} into its log.")
        except errors.TooSoon as error:
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

    async def _read(self, fleet: Fleet, screen: Screen) -> None:
        """Carry out what is typed until `/quit` or the end of input."""
        while True:
            line = await self._lines.read("> ")
            if line is None or line.strip() == "/quit":
                break
            await self._obey(line.strip(), fleet, screen)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await fleet.wait_until_sent()

    async def _obey(self, line: str, fleet: Fleet, screen: Screen) -> None:
        command, _, argument = line.partition(" ")
        if not line:
            return
        if command == "/help":
            self._write(f"{HELP}\n{MORE_HELP}")
        elif command == "/to":
            peer = argument.replace(" ", "").lstrip("+")
            if peer.isascii() and peer.isdigit() and 7 <= len(peer) <= 15:
                screen.to = peer
                self._write(f"What you type goes to +{peer}.")
            else:
                self._write("Use /to NUMBER, like /to +15550000000.")
        elif not screen.to:
            known = ", ".join(f"+{peer}" for peer in sorted(screen.peers))
            self._write(f"To whom? Choose with /to NUMBER{f' ({known})' if known else ''}.")
        else:
            await self._send(line, fleet, screen)

    async def _send(self, line: str, fleet: Fleet, screen: Screen) -> None:
        peer = screen.to
        thread = screen.thread(peer)
        try:
            content = commands.compose(line, peer, thread) if line.startswith("/") else composing.text(line)
            thread.sent = await fleet.send_content(self._number, peer, content, self._settings.name)
            screen.peers.add(peer)
        except KeyError:
            self._write(f"There is no {line.split()[0]}. {HELP}")
        except commands.Misused as error:
            self._write(str(error))
        except errors.HandsetError as error:
            self._write(f"! not sent: {error}")


def _sentence(error: errors.HandsetError) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]


def printable(text: str) -> str:
    """Without what would move the cursor or change the terminal: a message is text, whatever its sender put into it."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
