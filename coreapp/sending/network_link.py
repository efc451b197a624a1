"""Connection of a shard to our own message network: its partition of the account, logged in over the device API."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from coreapp import statistics
from coreapp.account.own_device import OwnDevice
from coreapp.network_connection import DeliveryListener, SendListener
from coreapp.sending.shared_connection import BATCHES, CALLS, NetworkConnections, SentBy, SharedConnection
from tidings import e2ee
from tidings.client import transports
from tidings.client.connection import DeviceConnection
from tidings.client.errors import NetworkUnreached
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.wire.device import REPLACED, STALE_EPOCH, UNAUTHORIZED, Deliver, Partition, PreKeysLow, Send

log = logging.getLogger(__name__)

_checked, _fetched = (BATCHES.labels(call) for call in ("check", "fetch"))

BACKOFF = (0.05, 2.0)  # first and longest delay between two connections, seconds
UNAUTHORIZED_SECONDS = 2.0  # seconds before a refused login is repeated


def make_connections(address: tuple[str, int], *, tls: ssl.SSLContext | None = None) -> NetworkConnections:
    """Return the connections of a process, which its shards share.

    tls: context to verify the network; None for plaintext
    """
    host, port = address
    dial = transports.tcp(host, port, tls=tls)
    return NetworkConnections(dial, name=f"{host}:{port}", backoff=BACKOFF, observe=_observe)


class NetworkLink:
    """Login of one shard's partition of a number, under the epoch of its lease. Sends are identified by their
    envelope's id.
    """

    name = "network-link"

    def __init__(self, connections: NetworkConnections, device: OwnDevice, lease: Lease) -> None:
        """Create the link of a shard, which joins one of the connections when it runs."""
        self._connections = connections
        self._shared: SharedConnection | None = None
        # Completed with the error that ends the link.
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._number = device.number
        self._token = device.token
        self._epoch = lease.epoch
        self._part = Partition(lease.partition, lease.shards, lease.layout)
        self._sends: SendListener
        self._deliveries: DeliveryListener
        self._prekeys_low: Callable[[int, int], None]
        self._on_connect: list[Callable[[], None]] = []
        self.connected = False
        # Whether the network refused the last login: the number was registered elsewhere, or is not registered.
        self.is_refused = False
        self._on_refused: list[Callable[[], None]] = []

    def listen(
        self, *, sends: SendListener, deliveries: DeliveryListener, prekeys_low: Callable[[int, int], None]
    ) -> None:
        """Register the listeners. Must be called before `run`.

        prekeys_low: called with the numbers of one-time pre-keys and of one-time Kyber pre-keys that the network has
            left, when it has few of one kind
        """
        self._sends = sends
        self._deliveries = deliveries
        self._prekeys_low = prekeys_low

    def on_connect(self, call: Callable[[], None]) -> None:
        """Register `call` to be called after each login."""
        self._on_connect.append(call)

    def on_refused(self, call: Callable[[], None]) -> None:
        """Register `call` to be called when the network refuses a login because of the token."""
        self._on_refused.append(call)

    async def run(self, stop: asyncio.Event) -> None:
        """Stay connected until `stop` is set. Raises `LeaseLost` if the network knows of a later owner."""
        shared = self._shared = self._connections.join(self._number, self)
        self._log_in()
        stopping = asyncio.create_task(stop.wait())
        try:
            either: list[asyncio.Future[Any]] = [stopping, self._failed]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
        finally:
            stopping.cancel()
            self._shared = None
            self.lost("stopped")
            await shared.leave(self._number)

    def drop(self, reason: str) -> None:
        """Close the connection; a new one is opened."""
        if self._shared is not None:
            self._shared.network.drop(reason)

    @property
    def silence(self) -> float:
        return self._shared.network.silence if self._shared is not None else 0.0

    async def check_contacts(self, numbers: Sequence[str]) -> set[str]:
        _checked.observe(len(numbers))
        return await self._network().check(self._number, numbers)

    async def fetch_bundles(self, numbers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle]:
        _fetched.observe(len(numbers))
        return await self._network().fetch(self._number, numbers)

    def _network(self) -> DeviceConnection[SentBy]:
        """Return the connection. Raises `NetworkUnreached` before the start and after the end."""
        if self._shared is None:
            raise NetworkUnreached(f"{self._number} is not logged in")
        return self._shared.network

    def send(self, envelope: Send) -> None:
        if self._shared is not None:
            self._shared.send(envelope, self)

    def acknowledge(self, deliveries: Iterable[Deliver]) -> None:
        if self._shared is not None:
            self._shared.network.acknowledge(deliveries)

    # Methods of `ConnectionMember`, called by the connection.

    def attached(self, number: str) -> None:
        self.connected, self.is_refused = True, False
        self._sends.connected()
        for call in self._on_connect:
            call()

    def detached(self, number: str, reason: str, detail: str) -> None:
        self.connected = False
        if reason == STALE_EPOCH:
            self.ended(LeaseLost(f"another process is logged in under an epoch above {self._epoch}"))
        elif reason == UNAUTHORIZED:
            log.error("network.login_refused", extra={"number": number, "reason": reason})
            self.is_refused = True
            asyncio.get_running_loop().call_later(UNAUTHORIZED_SECONDS, self._log_in)
            for call in self._on_refused:
                call()
        elif reason == REPLACED:
            # Another owner may have replaced this one: the response to the next login shows it.
            if self._shared is not None and self._shared.is_shared:
                asyncio.get_running_loop().call_later(random.uniform(*BACKOFF), self._log_in)  # noqa: S311
            else:
                self.drop(reason)

    def ended(self, error: BaseException) -> None:
        """End the link: `run` raises the error."""
        if not self._failed.done():
            self._failed.set_exception(error)
            # Mark the exception as retrieved: the link may have stopped.
            self._failed.exception()

    def lost(self, reason: str) -> None:
        self.connected = False

    def delivered(self, delivery: Deliver) -> None:
        self._deliveries.delivered(delivery)

    def accepted(self, sent: Sequence[str]) -> None:
        self._sends.accepted(sent)

    def refused(self, sent: str, reason: str, detail: str) -> None:
        self._sends.refused(sent, reason, detail)

    def held_back(self, sent: str) -> None:
        self._sends.held_back(sent)

    def prekeys_low(self, notice: PreKeysLow) -> None:
        self._prekeys_low(notice.remaining, notice.kyber_remaining)

    def _log_in(self) -> None:
        if self._shared is not None:
            self._shared.network.log_in(self._number, self._token, epoch=self._epoch, part=self._part)


def _observe(call: str, result: str, seconds: float) -> None:
    CALLS.labels(call).observe(seconds)
    statistics.CALLED.labels(call, result).observe(seconds * 1000)
