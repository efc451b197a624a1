"""Devices that live in one process: their store, their connections, and what runs between the two."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from handset.application import Application
from handset.devices.context import FleetContext
from handset.devices.device import Device, DeviceObserver
from handset.groups.groups import FleetGroups
from handset.link import FleetLink
from handset.receiving.items import Delivery
from handset.receiving.mailroom import Mailroom
from handset.receiving.session_renewal import SessionRenewal
from handset.sender import MessageSender
from tidings import e2ee
from tidings.client.http import NetworkApi
from tidings.client.transports import Dial
from tidings.runtime.service import wait_for
from tidings.storage import outages
from tidings.storage.handset.outbox import OutboxRow
from tidings.wire import content
from tidings.wire.device import OVERLOADED, STALE_GROUP, Deliver, PreKeysLow

log = logging.getLogger(__name__)

MAX_DELAY = 5.0


class Fleet:
    """Runs devices that are registered already.

    ready: set when every device has been answered to its first login.
    groups: those that its devices are in.
    """

    def __init__(
        self,
        context: FleetContext,
        devices: Sequence[Device],
        application: Application,
        *,
        dials: Sequence[Dial],
        api: NetworkApi | None = None,
    ) -> None:
        """dials: one for each connection; devices are spread over them. api: for groups; without it there are none."""
        self.name = context.name
        self.devices = {device.number: device for device in devices}
        self.ready = asyncio.Event()
        self._context = context
        self._application = application
        self._observers: list[DeviceObserver] = []
        self._links = [
            FleetLink(f"{self.name}-{index}", dial, devices[index :: len(dials)], owner=self, clock=context.clock)
            for index, dial in enumerate(dials)
        ]
        self._link_of = {
            device.number: link for index, link in enumerate(self._links) for device in devices[index :: len(dials)]
        }
        self._waiting_for = set(self._links)
        self._sender = MessageSender(application, self.fetch_bundles)
        self._renewals = SessionRenewal(self._sender.renew_session, context.clock)
        self.groups = FleetGroups(context, self.devices, self._sender, api=api)

    def observe(self, observer: DeviceObserver) -> None:
        """Call this one too when something happens to the devices."""
        self._observers.append(observer)

    @property
    def outstanding(self) -> int:
        """Envelopes in the outbox."""
        return self._sender.mailroom.outstanding if self._sender.mailroom is not None else 0

    @property
    def is_connected(self) -> bool:
        return all(link.is_open for link in self._links)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`: open the store, keep the connections up; after a failed commit do both again."""
        delay, clock = 0.1, self._context.clock
        while not stop.is_set():
            opened_at = clock.monotonic()
            try:
                mailroom = await Mailroom.open(
                    self._context,
                    self.devices,
                    self._application,
                    renew_session=self._renewals.request,
                    exchange_keys=self.groups.keys_wanted,
                )
            except Exception as error:
                if not outages.is_outage(error):
                    raise
                log.warning("store.away", extra={"fleet": self.name, "error": repr(error)[:200]})
            else:
                self._sender.use(mailroom)
                await self._run_until_failure(mailroom, stop)
                if clock.monotonic() - opened_at > 2 * MAX_DELAY:
                    delay = 0.1
            await wait_for(stop, delay)
            delay = min(2 * delay, MAX_DELAY)

    async def _run_until_failure(self, mailroom: Mailroom, stop: asyncio.Event) -> None:
        ending = asyncio.Event()
        running = [asyncio.create_task(link.run(ending), name=link.name) for link in self._links]
        running.append(asyncio.create_task(self._renewals.run(ending), name=f"{self.name} sessions"))
        self.groups.reset()
        running.append(asyncio.create_task(self.groups.run(ending), name=f"{self.name} groups"))
        waiting = [asyncio.create_task(stop.wait()), asyncio.create_task(mailroom.failed.wait())]
        try:
            await asyncio.wait([*waiting, *running], return_when=asyncio.FIRST_COMPLETED)
            # What has arrived is committed and acknowledged while the connections are still there.
            await mailroom.close()
        finally:
            ending.set()
            for task in waiting:
                task.cancel()
            results = await asyncio.gather(*running, return_exceptions=True)
            self._sender.use(None)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def send(self, number: str, peer: str, text: str) -> str:
        """Send a text; returns its id when it is safely in the outbox, connected or not.

        Raises `NoSuchNumber`; `NetworkAway` when there is no session and no bundle can be had; `NotStored`.
        """
        return await self._sender.send(self.devices[number], peer, content.encode_text(text))

    async def send_content(self, number: str, peer: str, message: Mapping[str, Any], name: str = "") -> str:
        """As `send`, for a content of any type (see `handset.composing`); name: of the sender's profile."""
        return await self._sender.send(self.devices[number], peer, content.encode(message, name))

    async def send_to_group(self, number: str, group: str, message: Mapping[str, Any], name: str = "") -> str:
        """A content of any type to everybody in a group; returns its id when it is safely in the outbox.

        Raises `NoSuchGroup`; `NetworkAway` when members have to be given a key and that cannot be done; `NotStored`.
        """
        return await self.groups.send(number, group, content.encode(message, name))

    async def send_each(self, device: Device, peers: Sequence[str], plaintext: bytes) -> list[str]:
        """The same to each of these in private; the ids, without those of peers that are not registered (any more).

        Raises `NetworkAway` and `NotStored`.
        """
        return await self._sender.send_each(device, peers, plaintext)

    async def fetch_bundles(self, device: Device, peers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle]:
        """Pre-key bundles of those of these numbers that are registered. Raises `NetworkAway`."""
        return await self._link_of[device.number].fetch(device, peers)

    async def wait_until_sent(self) -> None:
        """Returns when the network has everything that is in the outbox."""
        if self._sender.mailroom is not None:
            await self._sender.mailroom.wait_until_sent()

    def log_in(self, device: Device) -> None:
        """Log a device in that was refused before and has a new token now."""
        self._link_of[device.number].log_in(device)

    def release_due(self) -> None:
        """Send what was held back until now; a clock that was moved by hand calls for it."""
        if self._sender.mailroom is not None:
            self._sender.mailroom.release_due()

    # Called by the links.

    def arrived(self, link: FleetLink, device: Device, delivery: Deliver) -> None:
        mailroom = self._sender.mailroom
        if mailroom is not None and not mailroom.deliver(Delivery(link, device, delivery)):
            link.drop("too many deliveries wait to be stored")

    def accepted(self, positions: Sequence[int]) -> None:
        if self._sender.mailroom is not None:
            self._sender.mailroom.accepted(positions)

    def refused(self, device: Device, envelope: OutboxRow, reason: str, detail: str) -> None:
        if self._sender.mailroom is None:
            return
        if reason == OVERLOADED:
            self._sender.mailroom.postpone(device, envelope)
        elif reason == STALE_GROUP and envelope.draft is not None:
            self.groups.stale(device, envelope)
        else:
            self._sender.give_up(device, envelope, detail or reason, reason)

    def prekeys_low(self, device: Device, notice: PreKeysLow) -> None:
        for observer in self._observers:
            observer.prekeys_low(device, notice.remaining, notice.kyber_remaining)

    def unauthorized(self, device: Device) -> None:
        for observer in self._observers:
            observer.unauthorized(device)

    def replaced(self, device: Device) -> None:
        for observer in self._observers:
            observer.replaced(device)

    def lost(self, link: FleetLink, reason: str) -> None:
        for observer in self._observers:
            observer.disconnected(reason)

    def logged_in(self, link: FleetLink) -> None:
        for observer in self._observers:
            observer.connected()
        self._waiting_for.discard(link)
        if not self._waiting_for:
            self.ready.set()
