"""Connection of several devices to the network: sends their due envelopes and passes deliveries to their owner."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from prometheus_client import Counter, Gauge

from handset.devices.device import Device
from tidings import e2ee
from tidings.aio.clock import Clock
from tidings.client.connection import DeviceConnection
from tidings.client.errors import ClientError, NetworkAway
from tidings.client.listener import DeviceListener
from tidings.client.transports import Dial, FrameTransport
from tidings.storage.handset.outbox import OutboxRow
from tidings.wire.connection import Handler
from tidings.wire.device import GROUP, OVERLOADED, REPLACED, UNAUTHORIZED, Deliver, PreKeysLow, Send

LOGGED_IN = Gauge("tidings_handset_devices_online", "Devices that are logged in")
CONNECTS = Counter("tidings_handset_connections_total", "Attempts to connect to the network", ["outcome"])
SENT = Counter("tidings_handset_envelopes_total", "Envelopes the network has answered", ["outcome"])

ACCEPTED = SENT.labels("accepted")

WAIT_SECONDS = 5.0  # to connect, before a fetch is given up
FETCH_SECONDS = 15.0  # for the response to a fetch


class LinkOwner(Protocol):
    """Owner of a link. All methods are called on the event loop and must not block."""

    def arrived(self, link: FleetLink, device: Device, delivery: Deliver) -> None:
        """Called for a delivery. Acknowledge it on `link` once it is on disk."""
        ...

    def accepted(self, positions: Sequence[int]) -> None:
        """Called when the network has accepted envelopes. They are removed from their devices' outboxes."""
        ...

    def refused(self, device: Device, envelope: OutboxRow, reason: str, detail: str) -> None:
        """Called when the network has refused an envelope.

        With the reason `overloaded` it stays in the outbox. Otherwise it is removed.
        """
        ...

    def prekeys_low(self, device: Device, notice: PreKeysLow) -> None: ...

    def unauthorized(self, device: Device) -> None:
        """Called when a device's token is invalid. The device stays offline until `log_in`."""
        ...

    def replaced(self, device: Device) -> None:
        """Called when a device has logged in on another connection.

        It stays offline until the next connection or `log_in`.
        """
        ...

    def lost(self, link: FleetLink, reason: str) -> None:
        """Called when the connection is lost. The link keeps reconnecting."""
        ...

    def logged_in(self, link: FleetLink) -> None:
        """Called when every device of this link has received a response to its login."""
        ...


class FleetLink(DeviceListener[OutboxRow]):
    """Sends the outbox of each device once the device is logged in, and keeps `Device.channel` up to date."""

    def __init__(self, name: str, dial: Dial, devices: Sequence[Device], *, owner: LinkOwner, clock: Clock) -> None:
        self.name = name
        self._devices = {device.number: device for device in devices}
        self._owner = owner
        self._clock = clock
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
                envelope.group if to_group else envelope.peer,
                envelope.id,
                envelope.kind,
                envelope.body,
                list(envelope.refs),
                group="" if to_group else envelope.group,
                epoch=envelope.epoch,
            ),
            envelope,
        )

    def acknowledge(self, deliveries: Sequence[Deliver]) -> None:
        self._connection.acknowledge(deliveries)

    async def fetch(self, device: Device, peers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle]:
        """Return pre-key bundles of those peers that are registered. Raises `NetworkAway`."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._connection.ready.wait()
            async with asyncio.timeout(FETCH_SECONDS):
                return await self._connection.fetch(device.number, peers)
        except (ClientError, TimeoutError) as error:
            raise NetworkAway(str(error) or "the network did not answer") from error

    # Called by the connection.

    def attached(self, number: str) -> None:
        device = self._devices[number]
        if device.channel is None:
            LOGGED_IN.inc()
        device.channel = self
        now = int(self._clock.now() * 1000)
        for envelope in device.outbox.values():
            if envelope.due_at <= now:
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
