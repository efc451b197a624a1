"""One reconnecting connection of the device API, with any number of devices logged in on it.

Each send is answered by its number. When the connection is lost, or the sending device is detached from it, outstanding
sends get no answer: they are resent with the same bytes once the device is attached, and the network drops duplicates.
The network redelivers unacknowledged envelopes at each login.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from tidings import e2ee
from tidings.client import held_back
from tidings.client.errors import NetworkRefusal, NetworkTimeout, NetworkUnavailable, NetworkUnreached
from tidings.client.held_back import HeldBack
from tidings.client.listener import DeviceListener
from tidings.client.reconnecting import Reconnecting
from tidings.client.transports import Dial
from tidings.wire import device

log = logging.getLogger(__name__)

LOGINS_IN_FLIGHT = 256  # logins without a response, per connection
SENDS_IN_FLIGHT = 4000  # unanswered sends; further ones wait here, bounded by what the caller has on its disk
SENDS_BYTES = 8 * 1024 * 1024  # bodies of unanswered sends, half of what the transport may have to write
REQUESTS_IN_FLIGHT = 4000  # checks and fetches; the network accepts 5,000 including logins
MAX_FETCH = 500  # numbers per request
RESPONSE_SECONDS = 30.0  # seconds until a request, or the oldest login, counts as failed
BACKOFF = (0.1, 5.0)  # seconds: the first and the longest delay before reconnecting
LOGIN_AGAIN_SECONDS = 1.0  # delay before a login is retried

# Permanent reasons: a login refused with one of these is not retried.
_LASTING = (device.UNAUTHORIZED, device.STALE_EPOCH)
# Temporary reasons, unrelated to the content of the request. UNAUTHORIZED: the device is no longer logged in on this
# connection.
_PASSING = (device.UNAUTHORIZED, device.BUSY, device.OVERLOADED, device.RATE_LIMITED, device.SHUTDOWN)

Response = TypeVar("Response", device.Checked, device.Bundles)
Sent = TypeVar("Sent")
# (call, result, seconds): a finished login, check or fetch; the result is `ok`, `away` or the network's reason.
Observer = Callable[[str, str, float], None]


@dataclasses.dataclass(frozen=True, slots=True)
class _Login:
    number: str
    token: str = dataclasses.field(repr=False)
    epoch: int
    part: device.Partition

    def frame(self, n: int) -> device.Login:
        part = self.part
        return device.Login(n, self.number, self.token, self.epoch, part.partition, part.partitions, part.layout)


class DeviceConnection(Reconnecting, Generic[Sent]):
    """Connection that logs its devices in, and does so again after each reconnect, with growing delays."""

    def __init__(
        self,
        dial: Dial,
        *,
        name: str = "network",
        backoff: tuple[float, float] = BACKOFF,
        login_again: float = LOGIN_AGAIN_SECONDS,
        observe: Observer | None = None,
    ) -> None:
        """Make a connection, which `run` opens.

        name:        name in log events
        backoff:     first and longest delay before reconnecting, seconds; the actual delay is random between 0 and the
            current one
        login_again: delay before a login that failed temporarily is retried, seconds
        observe:     called after each login, check and fetch
        """
        super().__init__(dial, name=name, backoff=backoff)
        self.ready = asyncio.Event()  # set while no login is outstanding
        self._listener: DeviceListener[Sent] = DeviceListener()
        self._observe = observe
        self._login_again_seconds = login_again
        self._devices: dict[str, _Login] = {}
        self._attached: set[str] = set()
        self._number = 0
        self._to_log_in: collections.deque[_Login] = collections.deque()
        self._logins: dict[int, tuple[_Login, float]] = {}
        self._requests: dict[int, asyncio.Future[Any]] = {}
        # Logouts without a response, and numbers that are logged out when the response to their login arrives.
        self._logouts: dict[int, str] = {}
        self._to_log_out: set[str] = set()
        self._in_flight: dict[int, tuple[device.Send, Sent]] = {}
        self._in_flight_bytes = 0
        self._waiting: collections.deque[tuple[device.Send, Sent]] = collections.deque()
        # Sends that the network refuses for now; the timer is for the earliest retry.
        self._held_back: HeldBack[Sent] = HeldBack()
        self._retry: asyncio.TimerHandle | None = None
        # Bounded by the network's delivery window.
        self._unacknowledged: dict[int, device.Deliver] = {}

    async def run(self, listener: DeviceListener[Sent], stop: asyncio.Event) -> None:
        """Keep the connection up until `stop`, and notify the listener. Raises the error given to `fail`."""
        self._listener = listener
        await self._keep_up(stop)

    def is_attached(self, number: str) -> bool:
        """Return whether the device is logged in."""
        return number in self._attached

    def log_in(self, number: str, token: str, *, epoch: int = 0, part: device.Partition = device.WHOLE) -> None:
        """Log in a device, or a partition of it: now, if connected, and after each reconnect.

        epoch: login epoch, for programs that replace each other as one device: the network rejects one lower than the
            highest it has seen
        part:  a connection can have one partition of each device; open another connection for a second one
        """
        login = self._devices[number] = _Login(number, token, epoch, part)
        if self.is_open:
            self._to_log_in.append(login)
            self._send_logins()

    def log_out(self, number: str) -> None:
        """Log a device out. Its outstanding sends are dropped. It may log in again once the listener's `logged_out` was
        called, or the connection was lost.
        """
        self._devices.pop(number, None)
        self._to_log_in = collections.deque(login for login in self._to_log_in if login.number != number)
        self._drop_sends(number)
        if not self.is_open:
            self._listener.logged_out(number)
        elif any(login.number == number for login, _ in self._logins.values()):
            self._to_log_out.add(number)
        else:
            self._send_logout(number)

    def _send_logout(self, number: str) -> None:
        n = self._next()
        self._logouts[n] = number
        assert self._transport is not None, "the connection is open"
        self._transport.send(device.Logout(n, number))

    def _logged_out(self, number: str) -> None:
        self._unacknowledged = {n: found for n, found in self._unacknowledged.items() if found.to != number}
        self._listener.logged_out(number)

    def send(self, envelope: device.Send, sent: Sent) -> bool:
        """Send an envelope of a device on this connection; its result is reported to the listener with `sent`. Returns
        False if the envelope was dropped: no result follows.

        The connection numbers the envelope. Envelopes of a device that is not attached are dropped: resend them when
        the listener's `attached` is called. When the network refuses the recipient for now, the envelope waits here and
        the listener's `held_back` is called. A transient envelope is dropped then.
        """
        if envelope.sender not in self._attached:
            return False
        if self._held_back and self._held_back.holds((envelope.sender, envelope.to)):
            if envelope.kind == device.TRANSIENT:
                return False
            self._held_back.add(envelope, sent)
            self._listener.held_back(sent)
        else:
            self._put_or_wait(envelope, sent)
        return True

    def acknowledge(self, deliveries: Iterable[device.Deliver]) -> None:
        """Acknowledge deliveries, which the network may then delete.

        Deliveries of an earlier connection are ignored: the network redelivers them.
        """
        held, numbers = self._unacknowledged, []
        for delivery in deliveries:
            if held.get(delivery.n) is delivery:
                del held[delivery.n]
                numbers.append(delivery.n)
        if numbers and self._transport is not None:
            self._transport.send(device.Ack(numbers))

    async def check(self, number: str, numbers: Sequence[str]) -> set[str]:
        """Return which of at most 10,000 numbers are registered. A device may have one call at a time.

        number: number of the requesting device

        Raises `NetworkUnavailable` and `NetworkRefusal`.
        """
        request = device.Check(self._next(), number, list(numbers))
        response = await self._call("check", request, device.Checked)
        return set(response.registered)

    async def fetch(self, number: str, numbers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle]:
        """Return a pre-key bundle for each of these numbers that is registered.

        number: number of the requesting device

        Raises `NetworkUnavailable` and `NetworkRefusal`.
        """
        found: dict[str, e2ee.PreKeyBundle] = {}
        for start in range(0, len(numbers), MAX_FETCH):
            request = device.Fetch(self._next(), number, list(numbers[start : start + MAX_FETCH]))
            response = await self._call("fetch", request, device.Bundles)
            found |= {bundle.number: _bundle_of(bundle) for bundle in response.bundles}
        return found

    async def _call(self, call: str, request: device.Check | device.Fetch, expected: type[Response]) -> Response:
        if self._transport is None or request.number not in self._attached:
            raise NetworkUnreached(f"+{request.number} is not logged in")
        if len(self._requests) >= REQUESTS_IN_FLIGHT:
            raise NetworkUnreached(f"{len(self._requests)} requests are already in flight")
        future = self._requests[request.n] = asyncio.get_running_loop().create_future()
        started, result = time.perf_counter(), "away"
        try:
            self._transport.send(request)
            async with asyncio.timeout(RESPONSE_SECONDS):
                response = await future
            result = response.reason if isinstance(response, device.Failed) else "ok"
        except TimeoutError as error:
            raise NetworkTimeout(f"no response within {RESPONSE_SECONDS:g} s") from error
        finally:
            self._requests.pop(request.n, None)
            self._observed(call, result, started)
        if isinstance(response, expected):
            return response
        if not isinstance(response, device.Failed) or response.reason in _PASSING:
            raise NetworkUnavailable(f"{call} was answered {response!r}")
        raise NetworkRefusal(response.reason, response.detail)

    def _observed(self, call: str, result: str, started: float) -> None:
        if self._observe is not None:
            self._observe(call, result, time.perf_counter() - started)

    def _next(self) -> int:
        self._number += 1
        return self._number

    # The connection.

    def _up(self) -> None:
        self._number = 0
        self._to_log_in.extend(self._devices.values())
        self._send_logins()

    def _down(self, reason: str) -> None:
        self.ready.clear()
        self._attached.clear()
        self._to_log_in.clear()
        logins, self._logins = self._logins, {}
        for _, started in logins.values():
            self._observed("login", "away", started)
        self._logouts.clear()
        self._to_log_out.clear()
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self._waiting.clear()
        self._held_back.drop()
        self._unacknowledged.clear()
        for future in self._requests.values():
            if not future.done():
                future.set_exception(NetworkUnavailable(reason))
        self._listener.lost(reason)

    def _unreachable(self) -> None:
        self._listener.lost("cannot be reached")

    def _is_stuck(self) -> bool:
        oldest = next(iter(self._logins.values()), None)
        return oldest is not None and time.perf_counter() - oldest[1] > RESPONSE_SECONDS

    def received(self, transport: Any, frame: Any) -> None:
        kind = type(frame)
        if kind is device.Deliver:
            self._unacknowledged[frame.n] = frame
            self._listener.delivered(frame)
        elif kind is device.Accepted:
            self._accepted(frame.n)
        elif kind is device.Refused:
            self._refused(frame)
        elif (kind is device.Ok or kind is device.Failed) and frame.n in self._logins:
            self._logged_in(frame)
        elif (kind is device.Ok or kind is device.Failed) and frame.n in self._logouts:
            self._logged_out(self._logouts.pop(frame.n))
        elif kind is device.Failed or kind is device.Checked or kind is device.Bundles:
            future = self._requests.get(frame.n)
            if future is not None and not future.done():
                future.set_result(frame)
        elif kind is device.PreKeysLow:
            self._listener.prekeys_low(frame)
        elif kind is device.Closing:
            if frame.number:
                self._off(frame.number, frame.reason, frame.detail)
            else:
                log.info("network.closing", extra={"link": self.name, "reason": frame.reason, "detail": frame.detail})
                transport.close(frame.reason)

    # Sends.

    def _put(self, envelope: device.Send, sent: Sent) -> None:
        self._number += 1
        envelope.n = self._number
        self._in_flight[self._number] = (envelope, sent)
        self._in_flight_bytes += len(envelope.body)
        assert self._transport is not None, "a device is attached"
        self._transport.send(envelope)

    def _accepted(self, numbers: Sequence[int]) -> None:
        in_flight = self._in_flight
        answered = [in_flight.pop(n) for n in numbers if n in in_flight]
        if answered:
            self._in_flight_bytes -= sum([len(envelope.body) for envelope, _ in answered])
            self._listener.accepted([sent for _, sent in answered])
        if self._held_back:
            for envelope, _ in answered:
                self._send_held_back(envelope)
        self._send_waiting()

    def _refused(self, response: device.Refused) -> None:
        entry = self._in_flight.pop(response.n, None)
        if entry is not None:
            envelope, sent = entry
            self._in_flight_bytes -= len(envelope.body)
            # The listener would resend it behind the backlog of its pair.
            is_ahead = response.reason == device.OVERLOADED and self._held_back.holds((envelope.sender, envelope.to))
            if response.reason in held_back.REASONS or is_ahead:
                now = asyncio.get_running_loop().time()
                self._held_back.refused(envelope, sent, now=now, seconds=response.retry_after)
                self._listener.held_back(sent)
                self._set_retry()
            else:
                self._listener.refused(sent, response.reason, response.detail)
                self._send_held_back(envelope)
        self._send_waiting()

    def _send_held_back(self, answered: device.Send) -> None:
        for envelope, sent in self._held_back.answered(answered, asyncio.get_running_loop().time()):
            self._put_or_wait(envelope, sent)

    def _retry_held_back(self) -> None:
        self._retry = None
        for envelope, sent in self._held_back.due(asyncio.get_running_loop().time()):
            self._put_or_wait(envelope, sent)
        self._set_retry()

    def _set_retry(self) -> None:
        loop = asyncio.get_running_loop()
        due = self._held_back.next_due(loop.time())
        if due is not None and (self._retry is None or due < self._retry.when()):
            if self._retry is not None:
                self._retry.cancel()
            self._retry = loop.call_at(due, self._retry_held_back)

    def _put_or_wait(self, envelope: device.Send, sent: Sent) -> None:
        if self._waiting or not self._has_room():
            self._waiting.append((envelope, sent))
        else:
            self._put(envelope, sent)

    def _send_waiting(self) -> None:
        while self._waiting and self._has_room():
            self._put(*self._waiting.popleft())

    def _has_room(self) -> bool:
        return len(self._in_flight) < SENDS_IN_FLIGHT and self._in_flight_bytes < SENDS_BYTES

    def _drop_sends(self, number: str) -> None:
        """Drop the outstanding sends of a device that is not logged in any more."""
        if number not in self._attached:
            return
        self._attached.discard(number)
        self._in_flight = {n: entry for n, entry in self._in_flight.items() if entry[0].sender != number}
        self._in_flight_bytes = sum(len(envelope.body) for envelope, _ in self._in_flight.values())
        self._waiting = collections.deque(entry for entry in self._waiting if entry[0].sender != number)
        self._held_back.drop(keep=lambda sender: sender != number)

    # Logins.

    def _send_logins(self) -> None:
        while self._to_log_in and len(self._logins) < LOGINS_IN_FLIGHT and self._transport is not None:
            login = self._to_log_in.popleft()
            n = self._next()
            self._logins[n] = (login, time.perf_counter())
            self._transport.send(login.frame(n))
        if not self._to_log_in and not self._logins:
            self.ready.set()
            self._listener.ready()

    def _logged_in(self, response: device.Ok | device.Failed) -> None:
        login, started = self._logins.pop(response.n)
        if login.number in self._to_log_out:
            self._to_log_out.discard(login.number)
            self._send_logout(login.number)
        elif isinstance(response, device.Ok):
            self._observed("login", "ok", started)
            self._attached.add(login.number)
            self._listener.attached(login.number)
        else:
            self._observed("login", response.reason, started)
            self._off(login.number, response.reason, response.detail, login)
        self._send_logins()

    def _off(self, number: str, reason: str, detail: str, refused: _Login | None = None) -> None:
        """Handle the end or the refusal of a device's login.

        Its outstanding sends are dropped, and later responses to them are ignored.

        refused: the login that was refused, ignored when `log_in` has replaced it; None when the network ended the
            login
        """
        login = self._devices.get(number)
        if refused is not None and login is not refused:
            return
        if number in self._attached:
            self._drop_sends(number)
            log.warning("device.detached", extra={"number": number, "reason": reason})
        elif reason in _LASTING:
            log.warning("login.refused", extra={"number": number, "reason": reason, "detail": detail})
        if reason in _LASTING:
            self._devices.pop(number, None)
        elif reason != device.REPLACED and login is not None:
            asyncio.get_running_loop().call_later(self._login_again_seconds, self._log_in_again, login)
        self._listener.detached(number, reason, detail)
        self._send_waiting()

    def _log_in_again(self, login: _Login) -> None:
        is_due = self._devices.get(login.number) is login and login.number not in self._attached
        is_under_way = login in self._to_log_in or any(sent is login for sent, _ in self._logins.values())
        if self.is_open and is_due and not is_under_way:
            self._to_log_in.append(login)
            self._send_logins()


def _bundle_of(found: device.Bundle) -> e2ee.PreKeyBundle:
    """Return the bundle that a session is initiated from. Its signatures are verified only there."""
    fields = msgspec.structs.asdict(found)
    del fields["number"]
    return e2ee.PreKeyBundle(**fields)
