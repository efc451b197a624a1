"""Requests of one connection that take longer than an event-loop iteration: logins, logouts, checks and fetches."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from prometheus_client import Counter

from network.connections.backend import Backend
from network.directory import bundles, lookups
from network.directory.logins import VerifiedDevice
from tidings.aio.batcher import BatcherClosed, BatcherFull
from tidings.wire import addresses, device
from tidings.wire.connection import Connection

log = logging.getLogger(__name__)

FAILED = Counter("tidings_network_requests_failed_total", "Logins, checks and fetches refused", ["reason"])


@dataclasses.dataclass(frozen=True, slots=True)
class LoggedIn:
    """Device that has logged in on a connection."""

    part: device.Partition  # Partition of the device that is on this connection.
    identity_key: bytes  # Key that the device was registered with at its login.
    token_hash: bytes


class DeviceCaller(Protocol):
    """Connection that sends requests; `devices` are the devices on it, by number."""

    @property
    def transport(self) -> Connection: ...

    @property
    def devices(self) -> Mapping[str, LoggedIn]: ...

    def consume(self) -> None:
        """Consume tokens for a request without effect."""

    def log_in(self, frame: device.Login, part: device.Partition, verified: VerifiedDevice) -> None:
        """Attach this device, which has proved its identity."""

    def log_out(self, number: str) -> None: ...

    def requests_ended(self) -> None:
        """Notify that no request is in flight any longer."""


class DeviceRequests:
    """Requests in flight, at most `Limits.requests`; one more fails."""

    __slots__ = ("_backend", "_caller", "_directory", "_tasks", "_transport")

    def __init__(self, caller: DeviceCaller, backend: Backend) -> None:
        self._caller = caller
        self._transport = caller.transport
        self._backend = backend
        self._directory = backend.directory
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Cancel all requests; the connection is closed."""
        for task in self._tasks:
            task.cancel()

    def begin_login(self, frame: device.Login, answered: Callable[[], None]) -> None:
        """Carry out a login on an unauthenticated connection.

        answered: called when the login is over.
        """

        async def log_in() -> None:
            try:
                await self._login(frame)
            finally:
                answered()

        self._start(frame.n, log_in())

    def begin(self, frame: device.Login | device.Logout | device.Check | device.Fetch) -> None:
        """Carry out one request; its response or failure is sent to the device."""
        if len(self._tasks) >= self._backend.limits.requests:
            self._fail_and_consume(frame.n, device.OVERLOADED, "too many requests of this connection are in flight")
        elif isinstance(frame, device.Login):
            self._start(frame.n, self._login(frame))
        elif isinstance(frame, device.Logout):
            self._start(frame.n, self._logout(frame))
        elif frame.number not in self._caller.devices:
            self._fail_and_consume(
                frame.n, device.UNAUTHORIZED, f"{frame.number!r} is not logged in on this connection"
            )
        elif isinstance(frame, device.Fetch):
            if len(frame.numbers) > bundles.MAX_NUMBERS:
                self._fail_and_consume(frame.n, device.TOO_LARGE, f"at most {bundles.MAX_NUMBERS} numbers in a fetch")
            elif self._may(frame, "fetch"):
                self._start(frame.n, self._fetch(frame))
        elif len(frame.numbers) > lookups.MAX_NUMBERS:
            self._fail_and_consume(frame.n, device.TOO_LARGE, f"at most {lookups.MAX_NUMBERS} numbers in a check")
        else:
            asker = frame.number, self._caller.devices[frame.number].part.partition
            try:
                self._directory.lookups.begin(asker)
            except lookups.Busy:
                self._fail_and_consume(frame.n, device.BUSY, "a check of this number is in flight")
                return
            if self._may(frame, "check"):
                # Not in the task, which may be cancelled before its first step.
                task = self._start(frame.n, self._check(frame))
                task.add_done_callback(lambda _: self._directory.lookups.end(asker))
            else:
                self._directory.lookups.end(asker)

    def _may(self, frame: device.Check | device.Fetch, call: str) -> bool:
        wait = self._directory.rate_limits.take(call, frame.number, len(frame.numbers))
        if wait:
            self._fail(frame.n, device.RATE_LIMITED, "too many numbers", math.ceil(wait))
        return not wait

    async def _login(self, frame: device.Login) -> None:
        await self._backend.delay.sleep()
        part = device.Partition(frame.partition, frame.partitions, frame.layout)
        if part == device.WHOLE:
            part = device.WHOLE
        verified = await self._verify(frame, part)
        if verified is not None:
            verified = await self._claim(frame, part, verified)
        if verified is not None:
            self._caller.log_in(frame, part, verified)

    async def _verify(self, frame: device.Login, part: device.Partition) -> VerifiedDevice | None:
        """Return the verified device; `None` when it may not attach, in which case it has received the failure."""
        verified = None
        if addresses.is_number(frame.number):
            verified = await self._directory.logins.verify(frame.number, frame.token, self._transport.host)
        if not self._transport.is_open:
            return None
        if verified is None:
            self._fail_and_consume(frame.n, device.UNAUTHORIZED, "unknown number or wrong token")
            return None
        return None if self._is_refused(frame, part) else verified

    def _is_refused(self, frame: device.Login, part: device.Partition) -> bool:
        here = self._caller.devices.get(frame.number)
        if not part.is_valid:
            self._fail_and_consume(
                frame.n, device.INVALID, "there is no such partition: there are 1, 2, 4, 8, 16 or 32, numbered from 0"
            )
        elif here is not None and not here.part.is_same_part(part):
            self._fail_and_consume(
                frame.n, device.INVALID, "another partition of the device is on this connection: log it out"
            )
        elif self._backend.router.is_stale_login(frame.number, frame.epoch, part):
            self._fail_and_consume(
                frame.n, device.STALE_EPOCH, "the device is logged in under a higher epoch or layout"
            )
        else:
            return False
        return True

    async def _claim(
        self, frame: device.Login, part: device.Partition, verified: VerifiedDevice | None
    ) -> VerifiedDevice | None:
        """Return the verified device once the other nodes let it attach; `None` when it may not."""
        logins, other_nodes, is_claimed = self._directory.logins, self._directory.other_nodes, False
        try:
            while verified is not None:
                changes = logins.changes
                if not await other_nodes.claim(frame.number, frame.epoch, part):
                    self._fail_and_consume(
                        frame.n, device.STALE_EPOCH, "the device is logged in under a higher epoch or layout"
                    )
                    return None
                # Other devices may have logged in on this node during the claim.
                if not self._transport.is_open or self._is_refused(frame, part):
                    return None
                if changes == logins.changes:
                    is_claimed = True
                    return verified
                # A number was registered during the claim, possibly this one.
                verified = await self._verify(frame, part)
            return None
        finally:
            if not is_claimed:
                other_nodes.detached(frame.number, part)

    async def _logout(self, frame: device.Logout) -> None:
        await self._backend.delay.sleep()
        self._caller.log_out(frame.number)
        self._transport.send(device.Ok(n=frame.n))

    async def _check(self, frame: device.Check) -> None:
        await self._backend.delay.sleep()
        registered = await self._directory.lookups.check(frame.number, frame.numbers)
        self._transport.send(device.Checked(n=frame.n, registered=registered))

    async def _fetch(self, frame: device.Fetch) -> None:
        await self._backend.delay.sleep()
        found = await self._directory.bundles.fetch(frame.number, frame.numbers)
        self._transport.send(device.Bundles(n=frame.n, bundles=found))

    def _start(self, n: int, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._guard(n, work))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        # Without effect unless the task was cancelled before its first step.
        task.add_done_callback(lambda _: work.close())
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._caller.requests_ended()

    async def _guard(self, n: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (BatcherFull, BatcherClosed):
            self._fail(n, device.OVERLOADED, "too many requests wait for the database")
        except Exception:
            log.exception("request.failed", extra={"peer": self._transport.peer, "n": n})
            self._fail(n, device.OVERLOADED, "the request cannot be served at present")

    def _fail_and_consume(self, n: int, reason: str, detail: str) -> None:
        """Fail a request for a reason that the device could have known, and consume tokens for it."""
        self._caller.consume()
        self._fail(n, reason, detail)

    def _fail(self, n: int, reason: str, detail: str, retry_after: int = 0) -> None:
        FAILED.labels(reason).inc()
        self._transport.send(device.Failed(n=n, reason=reason, detail=detail, retry_after=retry_after))
