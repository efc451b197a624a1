"""Phones of a page: the numbers that its process runs side by side, each with its own fleet and its chats."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from handset import errors, message_parts, own_number
from handset.application import ReceivedMessage, SendReceipt
from handset.composing import Content
from handset.devices import lock
from handset.devices.context import FleetContext
from handset.devices.device import Device, DeviceObserver
from handset.devices.registration import DeviceRegistry
from handset.devices.row_sealer import RowSealer
from handset.fleet import Fleet
from handset.own_number import OwnNumber
from handset.receiving.sender_keys import SenderKeyStore
from handset.sending.outbox import OutboxBatch
from handset.web import strings
from handset.web.recorder import ChatRecorder, decoded
from tidings import e2ee
from tidings.aio import service
from tidings.aio.clock import Clock
from tidings.aio.lru import LRU
from tidings.aio.service import Service, ServiceFailed
from tidings.client.errors import ClientError, Unauthorized
from tidings.client.http import NetworkApi
from tidings.client.transports import Dial, FrameTransport
from tidings.storage.database import Connection, Database
from tidings.storage.handset import chats, devices, preferences
from tidings.storage.handset.chats import ChatItemRow
from tidings.storage.handset.preferences import PreferencesRow
from tidings.wire import addresses, content
from tidings.wire.connection import Handler
from tidings.wire.device import READ

log = logging.getLogger(__name__)

MAX_PHONES = 20  # open at a time; each has a connection and its pre-keys
MAX_KNOWN = 200  # numbers in the list
MAX_READ = 100  # messages that are marked as read at a time
MAX_BLOCKED = 100  # numbers that one phone blocks
STOP_SECONDS = 5.0


class PowerSwitch:
    """Dial of a phone that can be switched off."""

    def __init__(self, dial: Dial, *, is_on: bool) -> None:
        self.is_on = is_on
        self._dial = dial

    async def __call__(self, handler: Handler) -> FrameTransport:
        if not self.is_on:
            raise ConnectionRefusedError("the phone is switched off")
        transport = await self._dial(handler)
        if not self.is_on:
            # It was switched off during the dial, when there was nothing to disconnect.
            transport.abort("the phone is switched off")
            raise ConnectionRefusedError("the phone is switched off")
        return transport


@dataclasses.dataclass(eq=False, repr=False)
class OpenPhone(DeviceObserver):
    """One number that runs, with its chats."""

    own: OwnNumber
    preferences: PreferencesRow
    changed: dataclasses.InitVar[Callable[[], None]]  # called when the page should show something else
    dial: dataclasses.InitVar[Dial]
    problem: str = dataclasses.field(default="", init=False)  # reason why the phone does not receive; empty for none

    def __post_init__(self, changed: Callable[[], None], dial: Dial) -> None:
        self._changed = changed
        self.recorder = ChatRecorder(self.own.context, self.number, changed)
        self._switch = PowerSwitch(dial, is_on=self.preferences.is_online)
        self.fleet: Fleet
        self.fleet, services = self.own.connect(self.recorder, self._switch, [self])
        self.fleet.on_accepted.append(self.recorder.accepted)
        self._services: Sequence[Service] = [self.recorder, *services]
        # Held by a change of the preferences, and by a change of the blocked numbers.
        self.changing, self.blocking = asyncio.Lock(), asyncio.Lock()
        self._announcing = asyncio.Lock()
        self._stop = asyncio.Event()
        self.has_ended = False  # whether an error has ended its services

    @property
    def number(self) -> str:
        return self.own.device.number

    @property
    def database(self) -> Database:
        return self.own.context.database

    @property
    def is_connected(self) -> bool:
        return self.fleet.is_connected

    async def run(self) -> None:
        """Run until `stop`. An error is kept in `problem`."""
        try:
            await service.run_services(self._services, self._stop, grace=STOP_SECONDS)
        except ServiceFailed as failure:
            self.has_ended = True
            self.problem = strings.STOPPED.format(reason=failure)
            self._changed()

    def stop(self) -> None:
        self._stop.set()

    # Called on behalf of the person.

    async def send(self, chat: str, message: Content) -> str:
        """Send a content to a peer or group, and record it. Returns its id. Raises `ClientError`."""
        if addresses.names_group(chat):
            raw = content.encode(message, self.preferences.name)
            message_id = await self.fleet.groups.send(self.number, chat, raw)
            await self.recorder.record_group_message(chat, message_id, raw)
        else:
            message_id = await self.fleet.send_content(self.number, chat, message, self.preferences.name)
            await self.recorder.record_sent()
        return message_id

    async def announce(self, new_number: str, message: Content) -> None:
        """Send the notice of a new number to everybody that this number has a chat with. Raises `ClientError`.

        Those whose last notice names this number are left out. So after an error the next call, also of another
        process, sends it only to those who have not received it.
        """
        async with self._announcing:
            await self.recorder.record()
            async with self.database.reading() as connection:
                known = await chats.list_all(connection, self.number)
                sent = await chats.list_sent(connection, self.number, message["type"])
            last = {row.chat: row for row in sent}
            for chat in known:
                if addresses.names_group(chat) or (chat in last and self._new_number_of(last[chat]) == new_number):
                    continue
                # One that is no longer registered learns nothing; the others do.
                with contextlib.suppress(errors.NoSuchNumber):
                    await self.send(chat, message)

    def _new_number_of(self, row: ChatItemRow) -> str:
        """Return the number that a notice of a new number names; empty for a damaged row."""
        try:
            raw = self.own.context.sealer.open_chat(row)
        except e2ee.CorruptState:
            return ""
        return message_parts.text_at(decoded(raw), "system", "new_wa_id")

    async def read(self, chat: str, *, up_to: int = 0, even_if_unwanted: bool = False) -> None:
        """Mark the messages of a chat as read, and send the receipts.

        up_to: position of the last message that was seen; 0 for all
        even_if_unwanted: also if the person does not send these
        """
        if self.has_ended or not (self.preferences.sends_read or even_if_unwanted):
            return
        device, recorder = self.own.device, self.recorder

        async def work(keys: SenderKeyStore, connection: Connection, outbox: OutboxBatch) -> int:
            rows = await chats.list_unread(connection, self.number, chat, up_to=up_to, limit=MAX_READ)
            for row in rows:
                outbox.add_receipt(device, _received(row), SendReceipt(READ))
            await recorder.mark_read(connection, rows)
            return len(rows)

        async with self.database.reading() as connection:
            waiting = await chats.list_unread(connection, self.number, chat, up_to=up_to, limit=1)
        if waiting and await self.fleet.do(work):
            self._changed()

    def switch(self, *, is_on: bool) -> None:
        """Switch the phone on or off. Messages that are sent while it is off go out afterwards."""
        self._switch.is_on = is_on
        if not is_on:
            self.fleet.disconnect("the phone is switched off")

    # Called by the fleet.

    def unauthorized(self, device: Device) -> None:
        device.token = None
        self.problem = strings.UNKNOWN_NUMBER
        self._changed()

    def replaced(self, device: Device) -> None:
        self.problem = strings.REPLACED
        self._changed()

    def connected(self) -> None:
        # Also called after a login that the network has refused.
        if self.own.device.token is not None:
            self.problem = ""
        self._changed()

    def disconnected(self, reason: str) -> None:
        self._changed()


def _received(row: ChatItemRow) -> ReceivedMessage:
    """Return the message of a received item, as far as a receipt needs it."""
    group = row.chat if addresses.names_group(row.chat) else ""
    return ReceivedMessage(row.number, row.author, row.id, row.source, 1, row.at, row.kind, "", group=group)


@dataclasses.dataclass(frozen=True, slots=True)
class KnownNumber:
    """Number that this data directory has a device of."""

    number: str
    is_open: bool
    is_registered: bool


@dataclasses.dataclass(eq=False, repr=False)
class PhoneBook:
    """Service that runs the open phones."""

    name = "phones"

    directory: Path  # data directory
    database: Database
    sealer: RowSealer
    clock: Clock
    _: dataclasses.KW_ONLY
    api: NetworkApi
    dial: Dial
    registration_key: str  # empty for none
    changed: Callable[[str], None]  # called with the number whose page should show something else

    def __post_init__(self) -> None:
        self.phones: dict[str, OpenPhone] = {}
        self._running: dict[str, tuple[asyncio.Task[None], contextlib.ExitStack]] = {}
        # Numbers whose phones are being opened. They count towards `MAX_PHONES`.
        self._opening: set[str] = set()
        # Registries by number: each knows the keys with which an earlier attempt may have registered the number.
        self._registries: LRU[str, DeviceRegistry] = LRU(MAX_PHONES)
        # Held while the phone of a number is opened or closed.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def run(self, stop: asyncio.Event) -> None:
        """Open the phones that were open before, and run them until `stop`."""
        async with self.database.reading() as connection:
            rows = await preferences.list_open(connection, MAX_PHONES)
        for row in rows:
            if not stop.is_set():
                try:
                    await self.open(row.number)
                except ClientError as error:
                    log.warning("phone.not_opened", extra={"number": row.number, "error": str(error)})
        await stop.wait()
        await asyncio.gather(*(self._end(number) for number in {*self._running, *self._opening}))

    def get(self, number: str) -> OpenPhone:
        """Return an open phone. Raises `UnknownPhone`."""
        phone = self.phones.get(number)
        if phone is None:
            raise errors.UnknownPhone(f"+{number} is not open on this page")
        return phone

    async def list_known(self) -> list[KnownNumber]:
        """List the numbers of people in this data directory."""
        async with self.database.reading() as connection:
            rows = await devices.list_fleets(connection, own_number.PREFIX, MAX_KNOWN)
        return [KnownNumber(row.number, row.number in self.phones, row.token is not None) for row in rows]

    async def open(self, number: str, *, code: str = "", pin: str = "", name: str = "") -> OpenPhone:
        """Open the phone of a number, which is registered first if it must be.

        Without a registration key and a code it raises `Unauthorized`: request a code with `request_code`.
        Raises also `WrongCode`, `LockedNumber`, `WrongPin`, `PageLimit`, `AlreadyRunning` and `NetworkUnavailable`.
        """
        async with self._lock_of(number):
            if number in self.phones:
                return self.phones[number]
            if len(self.phones) + len(self._opening) >= MAX_PHONES:
                raise errors.PageLimit(f"{MAX_PHONES} phones are open, which is the limit; close one")
            self._opening.add(number)
            try:
                return await self._open(number, code, pin, name)
            finally:
                self._opening.discard(number)

    async def _open(self, number: str, code: str, pin: str, name: str) -> OpenPhone:
        with contextlib.ExitStack() as held:
            held.enter_context(lock.only_one(self.directory, own_number.fleet_of(number)))
            context = FleetContext(own_number.fleet_of(number), self.database, self.sealer, self.clock)
            device = await own_number.load(context, number)
            own = OwnNumber(context, device, self.api, known=self._registries.get(number))
            self._registries.put(number, own.registry)
            if own.device.token is None:
                await self._register(own, code, pin)
            phone = OpenPhone(
                own, await self._opened_preferences(number, name), lambda: self.changed(number), self.dial
            )
            await phone.recorder.open()
            self.phones[number] = phone
            self._running[number] = (asyncio.create_task(phone.run(), name=f"phone {number}"), held.pop_all())
            return phone

    async def register_again(self, number: str, *, code: str = "", pin: str = "") -> OpenPhone:
        """Open a phone that has a problem again: one that has stopped, or whose number must be registered again.

        Raises as `open` does.
        """
        phone = self.get(number)
        if not phone.problem:
            # Another tab has done so.
            return phone
        if not phone.has_ended:
            phone.own.device.token = None
        await self._end(number)
        return await self.open(number, code=code, pin=pin)

    async def request_code(self, number: str) -> None:
        """Make the network issue a registration code for a number. Raises `TooSoon` and `NetworkUnavailable`."""
        await self.api.request_code(number)

    async def close(self, number: str) -> None:
        """Close a phone. It stays registered, and messages wait for it in the network."""
        await self.change_preferences(number, is_open=False)
        await self._end(number)
        self.changed(number)

    async def change_preferences(self, number: str, **changes: object) -> None:
        """Change and store the preferences of an open phone. Raises `UnknownPhone`."""
        phone = self.get(number)
        async with phone.changing:
            changed = dataclasses.replace(phone.preferences, **changes)  # type: ignore[arg-type]
            async with self.database.transaction() as connection:
                await preferences.save(connection, changed)
            phone.preferences = changed
            phone.switch(is_on=changed.is_online)
        self.changed(number)

    async def block(self, number: str, other: str, *, is_blocked: bool) -> None:
        """Block or unblock a number. Raises `PageLimit` when as many are blocked as one phone may."""
        phone = self.get(number)
        async with phone.blocking:
            blocked = [each for each in phone.preferences.blocked if each != other]
            if is_blocked and len(blocked) >= MAX_BLOCKED:
                raise errors.PageLimit(f"{MAX_BLOCKED} numbers are blocked, which is the limit")
            await (self.api.block if is_blocked else self.api.unblock)(phone.own.device, other)
            await self.change_preferences(number, blocked=tuple(blocked) + ((other,) if is_blocked else ()))

    async def _register(self, own: OwnNumber, code: str, pin: str) -> None:
        if code:
            await own_number.register(own.registry, own.device, code=code, pin=pin)
        elif self.registration_key:
            await own_number.register(own.registry, own.device, registration_key=self.registration_key, pin=pin)
        else:
            raise Unauthorized("the number needs a registration code")

    async def _opened_preferences(self, number: str, name: str) -> PreferencesRow:
        async with self.database.transaction() as connection:
            known = await preferences.find(connection, number)
            changed = dataclasses.replace(known or PreferencesRow(number), is_open=True)
            if name:
                changed = dataclasses.replace(changed, name=name)
            await preferences.save(connection, changed)
        return changed

    def _lock_of(self, number: str) -> asyncio.Lock:
        return self._locks.setdefault(number, asyncio.Lock())

    async def _end(self, number: str) -> None:
        async with self._lock_of(number):
            found = self._running.pop(number, None)
            if found is None:
                return
            running, held = found
            phone = self.phones.pop(number)
            phone.stop()
            with held:
                await running
                if phone.own.device.token is None:
                    await own_number.save(phone.own.context, phone.own.device)
