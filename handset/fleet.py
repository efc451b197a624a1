"""Devices that one process runs, with their store and their connections to the network."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import Counter, Gauge

from handset.application import Application
from handset.devices.context import FleetContext
from handset.devices.device import Device, DeviceObserver
from handset.groups import FleetGroups
from handset.receiving.items import Delivery, GroupWork
from handset.receiving.message_store import MessageStore
from handset.receiving.session_renewal import SessionRenewal
from handset.sender import MessageSender
from tidings import e2ee
from tidings.aio.service import wait_for
from tidings.client.connection import DeviceConnection
from tidings.client.errors import ClientError, NetworkUnavailable
from tidings.client.http import NetworkApi
from tidings.client.listener import DeviceListener
from tidings.client.transports import Dial, FrameTransport
from tidings.storage import outages
from tidings.storage.handset.outbox import OutboxRow
from tidings.wire import content
from tidings.wire.connection import Handler
from tidings.wire.device import GROUP, OVERLOADED, REPLACED, STALE_GROUP, UNAUTHORIZED, Deliver, PreKeysLow, Send

log = logging.getLogger(__name__)

LOGGED_IN = Gauge("tidings_handset_devices_online", "Devices that are logged in")
CONNECTS = Counter("tidings_handset_connections_total", "Attempts to connect to the network", ["outcome"])
SENT = Counter("tidings_handset_envelopes_total", "Envelopes the network has answered", ["outcome"])

ACCEPTED = SENT.labels("accepted")

WAIT_SECONDS = 5.0  # seconds to connect, before a fetch is given up
FETCH_SECONDS = 15.0  # seconds for the response to a fetch
MAX_DELAY = 5.0  # longest delay before the store is opened again, seconds


@dataclasses.dataclass(eq=False, repr=False)
class Fleet:
    """Runs registered devices."""

    context: FleetContext
    members: dataclasses.InitVar[Sequence[Device]]
    application: Application
    _: dataclasses.KW_ONLY
    dials: dataclasses.InitVar[Sequence[Dial]]  # one per connection; devices are distributed over them
    api: dataclasses.InitVar[NetworkApi | None] = None  # network API for groups; `None` for a fleet without groups

    def __post_init__(self, members: Sequence[Device], dials: Sequence[Dial], api: NetworkApi | None) -> None:
        # Name under which the fleet stores its rows.
        self.name = self.context.name
        self.devices = {device.number: device for device in members}
        self.ready = asyncio.Event()  # set when every device has received a response to its first login
        # Called with envelopes that the network has accepted; empty unless an application shows their state.
        self.on_accepted: list[Callable[[Sequence[OutboxRow]], None]] = []
        self._observers: list[DeviceObserver] = []
        self._links = [
            FleetLink(f"{self.name}-{index}", dial, members[index :: len(dials)], owner=self)
            for index, dial in enumerate(dials)
        ]
        self._link_of = {
            device.number: link for index, link in enumerate(self._links) for device in members[index :: len(dials)]
        }
        self._waiting_for = set(self._links)
        self._sender = MessageSender(self.application, self.fetch_bundles)
        self._renewals = SessionRenewal(self._sender.renew_session, self.context.clock)
        # Groups that the devices are in.
        self.groups = FleetGroups(self.context, self.devices, self._sender, network=api)

    def observe(self, observer: DeviceObserver) -> None:
        """Add an observer of events of the devices."""
        self._observers.append(observer)

    @property
    def outstanding(self) -> int:
        """Return the number of envelopes in the outbox."""
        return self._sender.store.dispatcher.outstanding if self._sender.store is not None else 0

    @property
    def is_connected(self) -> bool:
        return all(link.is_open for link in self._links)

    async def run(self, stop: asyncio.Event) -> None:
        """Open the store and keep the connections up until `stop`. After a failed commit, reopen both."""
        delay, clock = 0.1, self.context.clock
        while not stop.is_set():
            opened_at = clock.monotonic()
            try:
                store = await MessageStore.open(
                    self.context,
                    self.devices,
                    self.application,
                    renew_session=self._renewals.request,
                    exchange_keys=self.groups.queue_key_exchange,
                )
            except Exception as error:
                # Other errors of the system are those of the application's record, as on a full disk.
                if not outages.is_outage(error) and not isinstance(error, OSError):
                    raise
                log.warning("store.away", extra={"fleet": self.name, "error": repr(error)[:200]})
            else:
                self._sender.use(store)
                await self._run_until_failure(store, stop)
                if clock.monotonic() - opened_at > 2 * MAX_DELAY:
                    delay = 0.1
            await wait_for(stop, delay)
            delay = min(2 * delay, MAX_DELAY)

    async def _run_until_failure(self, store: MessageStore, stop: asyncio.Event) -> None:
        ending = asyncio.Event()
        running = [asyncio.create_task(link.run(ending), name=link.name) for link in self._links]
        running.append(asyncio.create_task(self._renewals.run(ending), name=f"{self.name} sessions"))
        self.groups.reset()
        running.append(asyncio.create_task(self.groups.run(ending), name=f"{self.name} groups"))
        waiting = [asyncio.create_task(stop.wait()), asyncio.create_task(store.failed.wait())]
        try:
            await asyncio.wait([*waiting, *running], return_when=asyncio.FIRST_COMPLETED)
            # Commit and acknowledge received deliveries while the connections are still open.
            await store.close()
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
        """Send a text. Returns its id when it is committed to the outbox, whether the device is connected or not.

        Raises `NoSuchNumber`, `NetworkUnavailable` when there is no session and no bundle can be fetched, and
        `NotStored`.
        """
        return await self._sender.send(self.devices[number], peer, content.encode_text(text))

    async def send_content(self, number: str, peer: str, message: Mapping[str, Any], name: str = "") -> str:
        """Send a content of any type (see `handset.composing`) as `send` does.

        name: name in the sender's profile; empty for none
        """
        return await self._sender.send(self.devices[number], peer, content.encode(message, name))

    async def send_to_group(self, number: str, group: str, message: Mapping[str, Any], name: str = "") -> str:
        """Send a content of any type to all participants of a group.

        Returns its id when it is committed to the outbox. Raises `NoSuchGroup`, `NetworkUnavailable` when participants
        need the key and it cannot be sent, and `NotStored`.
        """
        return await self.groups.send(number, group, content.encode(message, name))

    async def send_each(self, device: Device, peers: Sequence[str], plaintext: bytes) -> list[str]:
        """Send the same content to each peer individually. Returns the ids, without those of unregistered peers.

        Raises `NetworkUnavailable` and `NotStored`.
        """
        return await self._sender.send_each(device, peers, plaintext)

    async def fetch_bundles(self, device: Device, peers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle]:
        """Return pre-key bundles of those peers that are registered. Raises `NetworkUnavailable`."""
        return await self._link_of[device.number].fetch(device, peers)

    async def wait_until_sent(self) -> None:
        """Wait until the network has accepted every envelope in the outbox."""
        if self._sender.store is not None:
            await self._sender.store.dispatcher.wait_until_empty()

    async def do(self, work: GroupWork) -> Any:
        """Do work in one transaction of the store, and return its result. Raises `NotStored`."""
        return await self._sender.do(work)

    def disconnect(self, reason: str) -> None:
        """Close the connections, which are opened again."""
        for link in self._links:
            link.drop(reason)

    def log_in(self, device: Device) -> None:
        """Log in a device that was refused before and has a new token now."""
        self._link_of[device.number].log_in(device)

    def add(self, device: Device) -> None:
        """Run one more registered device, and log it in."""
        link = self._links[len(self.devices) % len(self._links)]
        self.devices[device.number], self._link_of[device.number] = device, link
        link.log_in(device)

    def release_due(self) -> None:
        """Send the envelopes whose delay has expired. Needed after the clock was moved manually."""
        if self._sender.store is not None:
            self._sender.store.dispatcher.release_due()

    # Called by the links, on the event loop. None of these methods blocks.

    def is_due(self, envelope: OutboxRow) -> bool:
        """Return whether an envelope in the outbox may be sent."""
        return self._sender.store is not None and self._sender.store.dispatcher.is_due(envelope)

    def arrived(self, link: FleetLink, device: Device, delivery: Deliver) -> None:
        """Pass a delivery to the message store, which acknowledges it on `link` once it is on disk."""
        store = self._sender.store
        if store is not None and not store.deliver(Delivery(link, device, delivery)):
            link.drop("too many deliveries wait to be stored")

    def accepted(self, positions: Sequence[int]) -> None:
        """Finish envelopes that the network has accepted. They were removed from their devices' outboxes."""
        if self._sender.store is not None:
            self._sender.store.accepted(positions)

    def refused(self, device: Device, envelope: OutboxRow, reason: str, detail: str) -> None:
        """Finish an envelope that the network has refused. If it was overloaded, the envelope stays in the outbox."""
        if self._sender.store is None:
            return
        if reason == OVERLOADED:
            self._sender.store.dispatcher.postpone(device, envelope)
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


class FleetLink(DeviceListener[OutboxRow]):
    """Sends the outbox of each device once the device is logged in, and keeps `Device.channel` up to date."""

    def __init__(self, name: str, dial: Dial, devices: Sequence[Device], *, owner: Fleet) -> None:
        self.name = name
        self._devices = {device.number: device for device in devices}
        self._owner = owner
        self._stop = asyncio.Event()
        self._connection = DeviceConnection[OutboxRow](_counted(dial), name=name)
        for device in devices:
            self.log_in(device)

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the connection up until `stop`."""
        self._stop = stop
        await self._connection.run(self, stop)

    def drop(self, reason: str) -> None:
        """Close the connection. The network redelivers everything unacknowledged on the next one."""
        self._connection.drop(reason)

    def log_in(self, device: Device) -> None:
        """Log in a device, also repeatedly."""
        self._devices[device.number] = device
        if device.token is not None:
            self._connection.log_in(device.number, device.token)

    def offer(self, device: Device, envelope: OutboxRow) -> None:
        to_group = envelope.kind == GROUP
        self._connection.send(
            Send(
                0,
                envelope.number,
                envelope.group_id if to_group else envelope.peer,
                envelope.id,
                envelope.kind,
                envelope.body,
                list(envelope.refs),
                group="" if to_group else envelope.group_id,
                epoch=envelope.epoch,
            ),
            envelope,
        )

    def acknowledge(self, deliveries: Sequence[Deliver]) -> None:
        self._connection.acknowledge(deliveries)

    async def fetch(self, device: Device, peers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle]:
        """Return pre-key bundles of those peers that are registered. Raises `NetworkUnavailable`."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._connection.ready.wait()
            async with asyncio.timeout(FETCH_SECONDS):
                return await self._connection.fetch(device.number, peers)
        except (ClientError, TimeoutError) as error:
            raise NetworkUnavailable(str(error) or "the network did not respond") from error

    # Called by the connection.

    def attached(self, number: str) -> None:
        device = self._devices[number]
        if device.channel is None:
            LOGGED_IN.inc()
        device.channel = self
        for envelope in device.outbox.values():
            if self._owner.is_due(envelope):
                self.offer(device, envelope)

    def detached(self, number: str, reason: str, detail: str) -> None:
        device = self._devices.get(number)
        if device is None:
            return
        was_attached = device.channel is self
        self._detach(device)
        if reason == UNAUTHORIZED:
            self._owner.unauthorized(device)
        elif reason == REPLACED and was_attached:
            self._owner.replaced(device)

    def ready(self) -> None:
        self._owner.logged_in(self)

    def lost(self, reason: str) -> None:
        for device in self._devices.values():
            self._detach(device)
        if not self._stop.is_set():
            self._owner.lost(self, reason)

    def delivered(self, delivery: Deliver) -> None:
        device = self._devices.get(delivery.to)
        if device is not None:
            self._owner.arrived(self, device, delivery)

    def accepted(self, sent: Sequence[OutboxRow]) -> None:
        devices, positions = self._devices, []
        for envelope in sent:
            if devices[envelope.number].outbox.pop(envelope.position, None) is not None:
                positions.append(envelope.position)
        ACCEPTED.inc(len(sent))
        self._owner.accepted(positions)
        for call in self._owner.on_accepted:
            call(sent)

    def refused(self, sent: OutboxRow, reason: str, detail: str) -> None:
        device = self._devices[sent.number]
        SENT.labels(reason).inc()
        if reason != OVERLOADED:
            device.outbox.pop(sent.position, None)
        self._owner.refused(device, sent, reason, detail)

    def prekeys_low(self, notice: PreKeysLow) -> None:
        device = self._devices.get(notice.number)
        if device is not None:
            self._owner.prekeys_low(device, notice)

    def _detach(self, device: Device) -> None:
        if device.channel is self:
            device.channel = None
            LOGGED_IN.dec()


def _counted(dial: Dial) -> Dial:
    async def counted(handler: Handler) -> FrameTransport:
        outcome = "failed"
        try:
            transport = await dial(handler)
            outcome = "ok"
        finally:
            CONNECTS.labels(outcome).inc()
        return transport

    return counted
