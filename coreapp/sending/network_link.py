"""Connection of the Coreapp to our own message network: one connection of the device API, logged in as the account."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import Histogram

from coreapp import statistics
from coreapp.account.own_device import OwnDevice
from coreapp.network_connection import DeliveryListener, SendListener
from tidings import e2ee
from tidings.client import transports
from tidings.client.connection import DeviceConnection
from tidings.client.listener import DeviceListener
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.wire.device import REPLACED, STALE_EPOCH, UNAUTHORIZED, Deliver, Partition, PreKeysLow, Send

log = logging.getLogger(__name__)

CALLS = Histogram(
    "tidings_upstream_seconds",
    "Calls to the network",
    ["call"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 5, 30),
)
BATCHES = Histogram(
    "tidings_upstream_batch_items",
    "Numbers per check or fetch, and envelopes per answer",
    ["call"],
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000),
)

_checked, _fetched, _accepted = (BATCHES.labels(call) for call in ("check", "fetch", "send"))
_sends = CALLS.labels("send")

BACKOFF = (0.05, 2.0)  # first and longest delay between two connections, seconds
UNAUTHORIZED_SECONDS = 2.0  # seconds before a refused login is repeated


class NetworkLink(DeviceListener[str]):
    """Connection of one shard's partition of a number, under the epoch of its lease. Sends are identified by their
    envelope's id.
    """

    name = "network-link"

    def __init__(
        self, address: tuple[str, int], device: OwnDevice, lease: Lease, *, tls: ssl.SSLContext | None = None
    ) -> None:
        """Create the connection of a shard.

        tls: context to verify the network; None for plaintext
        """
        host, port = address
        self._number = device.number
        self._token = device.token
        self._epoch = lease.epoch
        self._part = Partition(lease.partition, lease.shards, lease.layout)
        self._sends: SendListener
        self._deliveries: DeliveryListener
        self._prekeys_low: Callable[[int, int], None]
        self._on_connect: list[Callable[[], None]] = []
        self._connection = DeviceConnection[str](
            transports.tcp(host, port, tls=tls), name=f"{host}:{port}", backoff=BACKOFF, observe=_observe
        )
        self.connected = False
        # Whether the network refused the last login: the number was registered elsewhere, or is not registered.
        self.is_refused = False
        self._on_refused: list[Callable[[], None]] = []
        # Id and send time of the one envelope being timed, as a sample of all; the id is empty while none is.
        self._timed, self._timed_at = "", 0.0

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
        self._log_in()
        await self._connection.run(self, stop)

    def drop(self, reason: str) -> None:
        """Close the connection; a new one is opened."""
        self._connection.drop(reason)

    @property
    def silence(self) -> float:
        return self._connection.silence

    async def check_contacts(self, numbers: Sequence[str]) -> set[str]:
        _checked.observe(len(numbers))
        return await self._connection.check(self._number, numbers)

    async def fetch_bundles(self, numbers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle]:
        _fetched.observe(len(numbers))
        return await self._connection.fetch(self._number, numbers)

    def send(self, envelope: Send) -> None:
        if not self._timed:
            self._timed, self._timed_at = envelope.id, time.perf_counter()
        self._connection.send(envelope, envelope.id)

    def acknowledge(self, deliveries: Iterable[Deliver]) -> None:
        self._connection.acknowledge(deliveries)

    # Methods of `DeviceListener`, called by the connection.

    def attached(self, number: str) -> None:
        self.connected, self.is_refused = True, False
        self._sends.connected()
        for call in self._on_connect:
            call()

    def detached(self, number: str, reason: str, detail: str) -> None:
        self.connected = False
        if reason == STALE_EPOCH:
            self._connection.fail(LeaseLost(f"another process is logged in under an epoch above {self._epoch}"))
        elif reason == UNAUTHORIZED:
            log.error("network.login_refused", extra={"number": number, "reason": reason})
            self.is_refused = True
            asyncio.get_running_loop().call_later(UNAUTHORIZED_SECONDS, self._log_in)
            for call in self._on_refused:
                call()
        elif reason == REPLACED:
            # Perhaps replaced by another owner: the response to the next login shows it.
            self._connection.drop(reason)

    def lost(self, reason: str) -> None:
        self.connected = False
        self._timed = ""

    def delivered(self, delivery: Deliver) -> None:
        self._deliveries.delivered(delivery)

    def accepted(self, sent: Sequence[str]) -> None:
        _accepted.observe(len(sent))
        if self._timed in sent:
            _sends.observe(time.perf_counter() - self._timed_at)
            self._timed = ""
        self._sends.accepted(sent)

    def refused(self, sent: str, reason: str, detail: str) -> None:
        if sent == self._timed:
            self._timed = ""
        self._sends.refused(sent, reason, detail)

    def held_back(self, sent: str) -> None:
        if sent == self._timed:
            self._timed = ""
        self._sends.held_back(sent)

    def prekeys_low(self, notice: PreKeysLow) -> None:
        self._prekeys_low(notice.remaining, notice.kyber_remaining)

    def _log_in(self) -> None:
        self._connection.log_in(self._number, self._token, epoch=self._epoch, part=self._part)


def _observe(call: str, result: str, seconds: float) -> None:
    CALLS.labels(call).observe(seconds)
    statistics.CALLED.labels(call, result).observe(seconds * 1000)
