"""Our own message network as the Coreapp's upstream: one connection of the device API, logged in as the account."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import Gauge, Histogram

from coreapp import statistics
from coreapp.errors import UpstreamAway, UpstreamRefused
from coreapp.upstream import Delivery, Envelope, Listener
from tidings import e2ee
from tidings.runtime import service
from tidings.storage.business.shards import LeaseLost
from tidings.wire import connection as wire
from tidings.wire import device as frames
from tidings.wire.requests import Requests

log = logging.getLogger(__name__)

CONNECTED = Gauge("tidings_upstream_connected", "1 while logged in to the network")
CALLS = Histogram(
    "tidings_upstream_seconds",
    "Calls to the network",
    ["call"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 5, 30),
)

PING_SECONDS = 20.0
SILENCE_SECONDS = 50.0
CALL_TIMEOUT = 30.0
MAX_FETCH = 500

Answer = frames.Ok | frames.Failed | frames.Checked | frames.Bundles


@dataclasses.dataclass(frozen=True, slots=True)
class _Receipt:
    """What acknowledges a delivery: its number, on the connection that it came on."""

    connection: wire.Connection
    number: int


class NetworkLink:
    """Keeps the connection up, with backoff from 50 ms to 2 s, and speaks for one number on it."""

    name = "network-link"

    def __init__(self, host: str, port: int, number: str, token: str, *, epoch: int) -> None:
        """epoch: of the lease under which we speak; the network keeps out whoever comes with a lower one."""
        self._address = (host, port)
        self._number = number
        self._token = token
        self._epoch = epoch
        self._listener: Listener | None = None
        self._connection: wire.Connection | None = None
        self._requests: Requests[Answer] = Requests()
        self._logged_in = False
        self._closed = asyncio.Event()
        self._sent: dict[int, str] = {}
        self._next_send = 0

    @property
    def connected(self) -> bool:
        return self._logged_in

    def listen(self, listener: Listener) -> None:
        """Say who hears what arrives; before `run`."""
        self._listener = listener

    async def run(self, stop: asyncio.Event) -> None:
        """Stay connected until `stop`. Raises `LeaseLost` when the network knows of a later owner."""
        delay = 0.05
        while not stop.is_set():
            try:
                await self._serve_once(stop)
                delay = 0.05
            except (OSError, wire.Disconnected, UpstreamAway) as error:
                log.warning("network.away", extra={"address": self._address, "error": str(error)})
            except UpstreamRefused as error:
                log.error("network.login_refused", extra={"number": self._number, "reason": error.reason})
                if error.reason == frames.STALE_EPOCH:
                    raise LeaseLost(f"another is logged in under an epoch above {self._epoch}") from error
                delay = 2.0
            await service.wait_for(stop, delay)
            delay = min(delay * 2, 2.0)

    async def _serve_once(self, stop: asyncio.Event) -> None:
        host, port = self._address
        self._closed.clear()
        connection = await wire.connect(host, port, frames.FromNetwork, self)
        stopping = asyncio.create_task(stop.wait())
        closed = asyncio.create_task(self._closed.wait())
        try:
            await self._ask("login", lambda n: frames.Login(n, self._number, self._token, self._epoch))
            self._logged_in = True
            CONNECTED.set(1)
            log.info("network.connected", extra={"address": f"{host}:{port}", "number": self._number})
            self._require_listener().connected()
            while not stop.is_set() and connection.is_open:
                await asyncio.wait([stopping, closed], timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if asyncio.get_running_loop().time() - connection.last_received > SILENCE_SECONDS:
                    connection.abort("the network is silent")
                connection.send(frames.Ping())
        finally:
            stopping.cancel()
            closed.cancel()
            connection.close("stopping")
            await self._closed.wait()

    async def check_contacts(self, numbers: Sequence[str]) -> set[str]:
        answer = await self._ask("check", lambda n: frames.Check(n, self._number, list(numbers)))
        if not isinstance(answer, frames.Checked):
            raise UpstreamAway(f"unexpected answer {answer!r}")
        return set(answer.registered)

    async def fetch_bundles(self, numbers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle]:
        found: dict[str, e2ee.PreKeyBundle] = {}
        for start in range(0, len(numbers), MAX_FETCH):
            answer = await self._ask("fetch", self._fetch_question(numbers[start : start + MAX_FETCH]))
            if not isinstance(answer, frames.Bundles):
                raise UpstreamAway(f"unexpected answer {answer!r}")
            found |= {bundle.number: _bundle(bundle) for bundle in answer.bundles}
        return found

    def send(self, envelope: Envelope) -> None:
        if self._connection is None or not self._logged_in:
            return
        self._next_send += 1
        self._sent[self._next_send] = envelope.id
        self._connection.send(
            frames.Send(
                self._next_send,
                self._number,
                envelope.to,
                envelope.id,
                envelope.kind,
                envelope.body,
                list(envelope.refs),
                trace=envelope.trace,
                group=envelope.group,
                epoch=envelope.epoch,
            )
        )

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        # Numbers of an earlier connection mean nothing on this one: those deliveries come again.
        numbers = []
        for delivery in deliveries:
            receipt = delivery.receipt
            if isinstance(receipt, _Receipt) and receipt.connection is self._connection:
                numbers.append(receipt.number)
        if numbers and self._connection is not None:
            self._connection.send(frames.Ack(numbers))

    # What the connection calls.

    def opened(self, connection: wire.Connection) -> None:
        self._connection = connection

    def received(self, connection: wire.Connection, frame: Any) -> None:
        listener = self._require_listener()
        if isinstance(frame, frames.Deliver):
            listener.delivered(
                Delivery(
                    frame.id,
                    frame.sender,
                    frame.kind,
                    frame.timestamp,
                    frame.body,
                    frame.refs,
                    _Receipt(connection, frame.n),
                    frame.trace,
                    frame.group,
                )
            )
        elif isinstance(frame, frames.Accepted):
            sent = self._sent
            listener.accepted([sent.pop(n) for n in frame.n if n in sent])
        elif isinstance(frame, frames.Refused):
            envelope_id = self._sent.pop(frame.n, None)
            if envelope_id is not None:
                listener.refused(envelope_id, frame.reason, frame.detail)
        elif isinstance(frame, frames.Ok | frames.Failed | frames.Checked | frames.Bundles):
            self._requests.answered(frame.n, frame)
        elif isinstance(frame, frames.PreKeysLow):
            listener.prekeys_low(frame.remaining)
        elif isinstance(frame, frames.Closing):
            log.warning("network.closing", extra={"reason": frame.reason, "detail": frame.detail})
            connection.close(frame.reason)

    def closed(self, connection: wire.Connection, reason: str) -> None:
        self._connection = None
        self._logged_in = False
        CONNECTED.set(0)
        self._sent.clear()
        self._requests.lost(reason)
        self._closed.set()
        log.info("network.disconnected", extra={"reason": reason})

    def _require_listener(self) -> Listener:
        if self._listener is None:
            raise RuntimeError("listen() comes before run()")
        return self._listener

    def _fetch_question(self, numbers: Sequence[str]) -> Callable[[int], frames.Fetch]:
        return lambda n: frames.Fetch(n, self._number, list(numbers))

    async def _ask(self, call: str, make: Callable[[int], Any]) -> Answer:
        """Raises `UpstreamAway` when it should be asked again later, `UpstreamRefused` for an answer that will stay."""
        logging_in = call == "login"
        if not self._logged_in and not logging_in:
            raise UpstreamAway("not logged in")
        started, result = time.perf_counter(), "away"
        try:
            answer = await self._requests.ask(self._connection, make, timeout=CALL_TIMEOUT)
            result = answer.reason if isinstance(answer, frames.Failed) else "ok"
        except (wire.Disconnected, TimeoutError) as error:
            raise UpstreamAway(str(error)) from error
        finally:
            took = time.perf_counter() - started
            CALLS.labels(call).observe(took)
            statistics.CALLED.labels(call, result).observe(took * 1000)
        if isinstance(answer, frames.Failed):
            # Unauthorized after a login: another Coreapp has just logged in with our number. It says nothing of what
            # was asked.
            later = answer.reason == frames.UNAUTHORIZED and not logging_in
            if later or answer.reason in (frames.BUSY, frames.OVERLOADED, frames.SHUTDOWN):
                raise UpstreamAway(f"{answer.reason}: {answer.detail}")
            raise UpstreamRefused(answer.reason, answer.detail)
        return answer


def _bundle(bundle: frames.Bundle) -> e2ee.PreKeyBundle:
    return e2ee.PreKeyBundle(
        registration_id=bundle.registration_id,
        identity_key=bundle.identity_key,
        signed_prekey_id=bundle.signed_prekey_id,
        signed_prekey=bundle.signed_prekey,
        signed_prekey_signature=bundle.signed_prekey_signature,
        prekey_id=bundle.prekey_id,
        prekey=bundle.prekey,
        kyber_prekey_id=bundle.kyber_prekey_id,
        kyber_prekey=bundle.kyber_prekey,
        kyber_prekey_signature=bundle.kyber_prekey_signature,
    )
