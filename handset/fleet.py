"""Devices that live in one process: their store, their connections, and what runs between the two."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from handset import errors
from handset.application import Application, DeviceEvent
from handset.devices.context import FleetContext
from handset.devices.device import Device
from handset.devices.vault import Vault
from handset.groups.groups import Groups, GroupWork
from handset.link import FleetLink
from handset.receiving.items import Delivery, OutgoingMessage
from handset.receiving.mailroom import Mailroom
from tidings import e2ee
from tidings.client.errors import ClientError
from tidings.client.http import NetworkApi
from tidings.client.transports import Dial
from tidings.runtime.allowance import Allowance
from tidings.runtime.clock import Clock, SystemClock
from tidings.runtime.service import wait_for
from tidings.storage import outages
from tidings.storage.database import Database
from tidings.storage.handset import outbox
from tidings.wire import content
from tidings.wire import device as wire

log = logging.getLogger(__name__)

MAX_TO_HEAL = 1000  # peers; one more is dropped, its next unreadable message asks again
MAX_HEALS = 3  # new sessions with the same peer ...
HEAL_PERIOD = 3600.0  # ... in so many seconds
HEAL_AGAIN = 5.0  # seconds after which another is tried when the network was away
MAX_DELAY = 5.0
OPEN_SECONDS = 5.0  # for the store to open, before a send is given up


class Fleet:
    """Runs devices that are registered already.

    ready: set when every device has been answered to its first login.
    groups: those that its devices are in.
    """

    def __init__(
        self,
        name: str,
        database: Database,
        devices: Sequence[Device],
        vault: Vault,
        application: Application,
        dials: Sequence[Dial],
        *,
        clock: Clock | None = None,
        prekeys_low: Callable[[Device, int, int], None] | None = None,
        unauthorized: Callable[[Device], None] | None = None,
        replaced: Callable[[Device], None] | None = None,
        connected: Callable[[bool, str], None] | None = None,
        api: NetworkApi | None = None,
    ) -> None:
        self.name = name
        self.devices = {device.number: device for device in devices}
        self.ready = asyncio.Event()
        self._context = FleetContext(name, database, vault, clock or SystemClock())
        self._application = application
        self._clock = self._context.clock
        self._prekeys_low = prekeys_low
        self._unauthorized = unauthorized
        self._replaced = replaced
        self._connected = connected
        self.groups = Groups(self, vault, api, self._clock)
        self._mailroom: Mailroom | None = None
        self._opened = asyncio.Event()
        self._links = [
            FleetLink(f"{name}-{index}", dial, devices[index :: len(dials)], owner=self, clock=self._clock)
            for index, dial in enumerate(dials)
        ]
        self._link_of = {
            device.number: link for index, link in enumerate(self._links) for device in devices[index :: len(dials)]
        }
        self._waiting_for = set(self._links)
        self._to_heal: OrderedDict[tuple[str, str], Device] = OrderedDict()
        self._healing: tuple[str, str] | None = None
        self._heals: Allowance[tuple[str, str]] = Allowance(
            self._clock, limit=MAX_HEALS, period=HEAL_PERIOD, remembered=10 * MAX_TO_HEAL
        )
        self._heal_wakeup = asyncio.Event()

    @property
    def outstanding(self) -> int:
        """Envelopes in the outbox."""
        return self._mailroom.outstanding if self._mailroom is not None else 0

    @property
    def is_connected(self) -> bool:
        return all(link.is_open for link in self._links)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`: open the store, keep the connections up; after a failed commit do both again."""
        delay = 0.1
        while not stop.is_set():
            opened_at = self._clock.monotonic()
            try:
                mailroom = await Mailroom.open(
                    self._context,
                    self.devices,
                    self._application,
                    renew_session=self._heal,
                    exchange_keys=self.groups.keys_wanted,
                )
            except Exception as error:
                if not outages.is_outage(error):
                    raise
                log.warning("store.away", extra={"fleet": self.name, "error": repr(error)[:200]})
            else:
                self._mailroom = mailroom
                self._opened.set()
                await self._run_until_failure(mailroom, stop)
                if self._clock.monotonic() - opened_at > 2 * MAX_DELAY:
                    delay = 0.1
            await wait_for(stop, delay)
            delay = min(2 * delay, MAX_DELAY)

    async def _run_until_failure(self, mailroom: Mailroom, stop: asyncio.Event) -> None:
        ending = asyncio.Event()
        running = [asyncio.create_task(link.run(ending), name=link.name) for link in self._links]
        running.append(asyncio.create_task(self._heal_peers(ending), name=f"{self.name} heal"))
        self.groups.reset()
        running.append(asyncio.create_task(self.groups.run(ending), name=f"{self.name} groups"))
        waiting = [asyncio.create_task(stop.wait()), asyncio.create_task(mailroom.failed.wait())]
        try:
            await asyncio.wait([*waiting, *running], return_when=asyncio.FIRST_COMPLETED)
            # What has arrived is committed and acknowledged while the connections are still there.
            await mailroom.close()
        finally:
            ending.set()
            self._heal_wakeup.set()
            for task in waiting:
                task.cancel()
            results = await asyncio.gather(*running, return_exceptions=True)
            self._mailroom = None
            self._opened.clear()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def send(self, number: str, peer: str, text: str) -> str:
        """Send a text; returns its id when it is safely in the outbox, connected or not.

        Raises `NoSuchNumber`; `NetworkAway` when there is no session and no bundle can be had; `NotStored`.
        """
        return await self._send(self.devices[number], peer, content.encode_text(text))

    async def send_content(self, number: str, peer: str, message: Mapping[str, Any], name: str = "") -> str:
        """As `send`, for a content of any type (see `handset.composing`); name: of the sender's profile."""
        return await self._send(self.devices[number], peer, content.encode(message, name))

    async def send_to_group(self, number: str, group: str, message: Mapping[str, Any], name: str = "") -> str:
        """A content of any type to everybody in a group; returns its id when it is safely in the outbox.

        Raises `NoSuchGroup`; `NetworkAway` when members have to be given a key and that cannot be done; `NotStored`.
        """
        return await self.groups.send(number, group, content.encode(message, name))

    async def send_each(self, device: Device, peers: Collection[str], plaintext: bytes) -> list[str]:
        """The same to each of these in private; the ids, without those of peers that are not there (any more).

        Raises `NetworkAway` and `NotStored`.
        """
        mailroom = await self._open_mailroom()
        sent: list[str] = []
        missing: list[str] = []
        for peer, id_ in zip(
            peers,
            await asyncio.gather(
                *(mailroom.send(OutgoingMessage(device, peer, plaintext, resendable=False)) for peer in peers)
            ),
            strict=True,
        ):
            if id_ is None:
                missing.append(peer)
            else:
                sent.append(id_)
        if missing:
            for peer, bundle in (await self._link_of[device.number].fetch(device, missing)).items():
                outgoing = OutgoingMessage(device, peer, plaintext, bundle, resendable=False)
                try:
                    id_ = await mailroom.send(outgoing)
                except e2ee.E2EEError as error:
                    fields = {"number": device.number, "peer": peer, "error": str(error)}
                    log.warning("bundle.unusable", extra=fields)
                    continue
                sent += [id_] if id_ is not None else []
        return sent

    async def do(self, work: GroupWork) -> Any:
        """The result of this work, which one transaction of the store carries out. Raises `NotStored`."""
        return await (await self._open_mailroom()).do(work)

    async def wait_until_gone(self, device: Device, message_ids: Collection[str]) -> None:
        """Returns when the network has these messages of a device, or has refused them for good."""
        await (await self._open_mailroom()).wait_until_gone(device, message_ids)

    def settle(self, envelope: outbox.OutboxRow) -> None:
        """This envelope, which is out of its device's outbox, needs no longer be sent."""
        if self._mailroom is not None:
            self._mailroom.accepted((envelope.position,))

    async def wait_until_sent(self) -> None:
        """Returns when the network has everything that is in the outbox."""
        if self._mailroom is not None:
            await self._mailroom.wait_until_sent()

    def log_in(self, device: Device) -> None:
        """Log a device in that was refused before and has a new token now."""
        self._link_of[device.number].log_in(device)

    def release_due(self) -> None:
        """Send what was held back until now; a clock that was moved by hand calls for it."""
        if self._mailroom is not None:
            self._mailroom.release_due()

    async def _send(
        self, device: Device, peer: str, plaintext: bytes, *, new_session: bool = False, resendable: bool = True
    ) -> str:
        mailroom = await self._open_mailroom()
        sent = None if new_session else await mailroom.send(OutgoingMessage(device, peer, plaintext))
        if sent is None:
            bundle = await self._fetch(device, peer)
            try:
                sent = await mailroom.send(OutgoingMessage(device, peer, plaintext, bundle, new_session, resendable))
            except e2ee.E2EEError as error:
                raise errors.NoSuchNumber(f"the keys of {peer} cannot be used: {error}") from error
        assert sent is not None
        return sent

    async def _open_mailroom(self) -> Mailroom:
        """It may still be opening, or opening again."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                while self._mailroom is None:
                    await self._opened.wait()
        except TimeoutError as error:
            raise errors.NotStored("the store is away") from error
        return self._mailroom

    async def _fetch(self, device: Device, peer: str) -> e2ee.PreKeyBundle:
        bundles = await self._link_of[device.number].fetch(device, [peer])
        if peer not in bundles:
            raise errors.NoSuchNumber(f"{peer} is not registered")
        return bundles[peer]

    def _heal(self, device: Device, peer: str, answered: bool) -> None:
        """A message of this peer could not be read, or one of ours by it: give it a new session, a few times an hour.

        answered: the peer has, on the session at hand. Where it has not, it may not have had it yet.
        """
        key = (device.number, peer)
        if key in self._to_heal or key == self._healing or len(self._to_heal) >= MAX_TO_HEAL:
            return
        if (answered or not self._heals.used(key)) and self._heals.take(key):
            self._to_heal[key] = device
            self._heal_wakeup.set()

    async def _heal_peers(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            while self._to_heal and not stop.is_set():
                self._healing, device = self._to_heal.popitem(last=False)
                number, peer = self._healing
                try:
                    await self._send(device, peer, content.NULL_CONTENT, new_session=True, resendable=False)
                    log.info("session.renewed", extra={"number": number, "peer": peer})
                except ClientError as error:
                    log.warning("session.not_renewed", extra={"number": number, "peer": peer, "error": str(error)})
                    if not isinstance(error, errors.NoSuchNumber):
                        self._to_heal[self._healing] = device
                        await wait_for(stop, HEAL_AGAIN)
                finally:
                    self._healing = None
            self._heal_wakeup.clear()
            if not stop.is_set():
                await self._heal_wakeup.wait()

    # Called by the links.

    def arrived(self, link: FleetLink, device: Device, delivery: wire.Deliver) -> None:
        if self._mailroom is not None and not self._mailroom.deliver(Delivery(link, device, delivery)):
            link.drop("too many deliveries wait to be stored")

    def accepted(self, positions: Sequence[int]) -> None:
        if self._mailroom is not None:
            self._mailroom.accepted(positions)

    def refused(self, device: Device, envelope: outbox.OutboxRow, reason: str, detail: str) -> None:
        if self._mailroom is None:
            return
        if reason == wire.OVERLOADED:
            self._mailroom.postpone(device, envelope)
        elif reason == wire.STALE_GROUP and envelope.draft is not None:
            self.groups.stale(device, envelope)
        else:
            self.give_up(device, envelope, detail or reason, reason)

    def give_up(self, device: Device, envelope: outbox.OutboxRow, detail: str, reason: str = "") -> None:
        """The envelope is not sent, and whoever wrote it is told."""
        self.settle(envelope)
        log.warning(
            "envelope.refused",
            extra={
                "number": device.number,
                "to": envelope.peer or envelope.group,
                "kind": envelope.kind,
                "reason": reason or detail,
            },
        )
        refs = envelope.refs or (envelope.id,)
        self._application.notify(
            DeviceEvent(device.number, envelope.peer or envelope.group, "refused", refs, detail, envelope.group)
        )

    def prekeys_low(self, device: Device, notice: wire.PreKeysLow) -> None:
        if self._prekeys_low is not None:
            self._prekeys_low(device, notice.remaining, notice.kyber_remaining)

    def unauthorized(self, device: Device) -> None:
        if self._unauthorized is not None:
            self._unauthorized(device)

    def replaced(self, device: Device) -> None:
        if self._replaced is not None:
            self._replaced(device)

    def lost(self, link: FleetLink, reason: str) -> None:
        if self._connected is not None:
            self._connected(False, reason)

    def logged_in(self, link: FleetLink) -> None:
        if self._connected is not None:
            self._connected(True, "")
        self._waiting_for.discard(link)
        if not self._waiting_for:
            self.ready.set()
