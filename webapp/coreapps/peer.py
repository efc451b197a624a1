"""Connection to one Coreapp, which reconnects, and requests over it."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import ssl
from collections.abc import Callable

from prometheus_client import Counter, Gauge

from tidings.aio import service
from tidings.aio.slots import Slots, SlotsExhausted
from tidings.net.exposure import ON_THIS_MACHINE, LinkCalls
from tidings.net.tls import describe
from tidings.wire import core
from tidings.wire.connection import MAX_FRAME, Connection, Disconnected, FrameTooLong, NotSent, connect
from tidings.wire.requests import Requests, TooManyRequests
from webapp.coreapps.interfaces import Make
from webapp.http.errors import CoreappUnavailable, CoreappUnreachable, Overloaded, RequestTooLarge

log = logging.getLogger(__name__)

CONNECTED = Gauge("tidings_webapp_coreapps_connected", "Coreapps that this Webapp is connected to")
SHED = Counter("tidings_webapp_messages_shed_total", "Messages refused because earlier messages waited too long")

# Seconds without any accepted message, after which messages that wait for their acceptance are given up.
STALL = 4.5
# Minimum and maximum seconds between attempts to connect, and seconds for one attempt.
FIRST_RETRY, LAST_RETRY, CONNECT_TIMEOUT = 0.05, 1.0, 5.0
# Seconds between two checks whether the Coreapp has sent anything, and seconds of silence after which it is pinged.
CHECK_SECONDS, PING_AFTER = 0.25, 0.5
# Checks without a response after which the Coreapp gets no more requests (1 s), and after which the connection is
# closed (5 s). Checks are counted rather than seconds, because this process may have been suspended itself.
SILENT_CHECKS, DEAD_CHECKS = 4, 20
# Request number of pings, whose responses no caller waits for.
PING = 0
# Messages in flight to a Coreapp: a few batches of its journal, so that other requests do not wait behind thousands of
# them. Seconds that the oldest of the waiting messages may have waited before further ones are refused.
MESSAGES, MAX_WAIT = 256, 1.0
# Responses processed per event-loop iteration. Each resumes a request, and a commit brings a hundred of them.
FRAMES_PER_ITERATION = 64


class Peer:
    """One Coreapp: connects and reconnects to it, and sends requests."""

    def __init__(
        self,
        address: str,
        key: str,
        changed: Callable[[], None],
        *,
        stall: float = STALL,
        calls: LinkCalls = ON_THIS_MACHINE,
    ) -> None:
        """Create a peer that is not connected.

        changed: called when `is_ready` or the connection has changed
        stall: seconds without an accepted message after which messages are given up
        calls: verification of the Coreapp
        """
        self._calls = calls
        self.address = address
        self.problem = "connecting"
        self._key = key
        self._changed = changed
        self._stall = stall
        self._requests: Requests[core.Response] = Requests()
        self._messages = Slots(MESSAGES, max_wait=MAX_WAIT)
        self._connection: Connection | None = None
        self._lost = asyncio.Event()
        self._connected = False
        self._silent = False
        # Set once the Coreapp has announced its stop. The connection is closed after the last response.
        self._leaving = False
        self._version = 0
        self._wanted = True
        self._loop = asyncio.get_running_loop()
        # Loop time of the first failed call since the Coreapp was last reached; `None` while it is reached.
        self._failed_at: float | None = self._loop.time()
        # Loop time of the latest accepted message.
        self._progress_at = -math.inf

    @property
    def is_ready(self) -> bool:
        """Return whether the peer is connected and responsive. A suspended Coreapp may process requests later."""
        return self._connected and not self._silent and not self._leaving

    @property
    def unreached(self) -> float:
        """Seconds since the first failed call; 0 while the Coreapp is reached. May be read by any thread."""
        since = self._failed_at
        # Not 0 even for a failure of this event-loop iteration, during which the loop's clock does not advance.
        return 0.0 if since is None else max(0.001, self._loop.time() - since)

    def is_overloaded(self, delay: float) -> bool:
        """Return whether the backlog is too old to accept a message that is sent in `delay` seconds."""
        return self._messages.is_overloaded(delay)

    @property
    def supports_repeats(self) -> bool:
        """Return whether the Coreapp detects repeated messages. An earlier release would accept a repetition twice."""
        return self._version >= 1

    @property
    def knows_its_contacts(self) -> bool:
        """Return whether each shard serves its own contacts. In earlier releases only the first shard serves them."""
        return self._version >= 2

    def supports(self, version: int) -> bool:
        """Return whether the Coreapp knows the requests of this `LINK_VERSION`. An earlier release would close the
        connection over one of them.
        """
        return self._version >= version

    async def run(self) -> None:
        """Keep the connection up until cancelled, or until retired and disconnected."""
        delay = FIRST_RETRY
        try:
            while self._wanted:
                try:
                    await self._connect()
                except (OSError, TimeoutError, ValueError, Disconnected) as error:
                    self._note(_cause(error))
                    if self._connection is not None:
                        self._connection.abort("no valid response to Hello")
                else:
                    delay = FIRST_RETRY
                    self._is_up(True)
                    log.info("coreapp.connected", extra={"address": self.address})
                    self._changed()
                    await self._monitor()
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311
                delay = min(delay * 2, LAST_RETRY)
        finally:
            self._is_up(False)
            if self._connection is not None:
                self._connection.close("not needed any more")

    def retire(self) -> None:
        """Stop reconnecting. Requests in flight may still get responses."""
        self._wanted = False

    async def send(self, make: Make, timeout: float) -> core.Response:
        """Send a message to be accepted, as soon as a slot is free. Raises the errors of `call`, and `Overloaded`.

        It is given up after `stall` seconds only if no other message was accepted in that time either, so a
        Coreapp that is slow because of its load is waited for.
        """
        try:
            await self._messages.take()
        except SlotsExhausted:
            SHED.inc()
            raise Overloaded("more messages arrive than can be accepted") from None
        try:
            if not self.is_ready:
                # The connection was lost while the message waited for a slot.
                raise CoreappUnreachable(f"the Coreapp at {self.address} does not respond")
            return await self.call(make, timeout, soon=True)
        finally:
            self._messages.release()

    async def call(self, make: Make, timeout: float, *, soon: bool = False) -> core.Response:
        """Send a request, and return the response. Raises `CoreappUnavailable` when no response comes.

        Whether the request was processed is unknown then. A request that was not sent raises
        `CoreappUnreachable`, `Overloaded` when too many are in flight, or `RequestTooLarge` when its size would
        make the Coreapp close the connection.

        soon: whether this is a message that waits at most `stall` seconds without progress
        """
        connection = self._connection if not self._leaving else None
        loop = asyncio.get_running_loop()
        started = loop.time()
        # Seconds without progress, and in total. With progress a message has at least `stall` seconds, even after a
        # long wait.
        stall, limit = min(timeout, self._stall), max(timeout, self._stall)

        def longer() -> float:
            return min(self._progress_at + stall, started + limit) - loop.time()

        try:
            if soon:
                return await self._requests.call(connection, make, timeout=stall, longer=longer)
            return await self._requests.call(connection, make, timeout=timeout)
        except FrameTooLong:
            raise RequestTooLarge(MAX_FRAME) from None
        except TooManyRequests as error:
            raise Overloaded(f"the Coreapp at {self.address}: {error}") from None
        except NotSent as error:
            raise CoreappUnreachable(f"the Coreapp at {self.address} cannot be reached: {error}") from None
        except Disconnected as error:
            raise CoreappUnavailable(
                f"the Coreapp at {self.address} closed the connection before it responded: {error}"
            ) from None
        except TimeoutError:
            seconds = f"{loop.time() - started:.1f}"
            raise CoreappUnavailable(f"the Coreapp at {self.address}: connection timed out after {seconds} s") from None
        finally:
            self._close_if_left()

    async def _monitor(self) -> None:
        """Check whether the Coreapp is responsive, until the connection is lost.

        A Coreapp that is suspended or cut off does not close its connection, and neither processes nor refuses
        requests.
        """
        loop = asyncio.get_running_loop()
        pinged_at, missed_pings = -math.inf, 0
        while not await service.wait_for(self._lost, CHECK_SECONDS):
            connection = self._connection
            if connection is None:
                return
            if connection.last_received >= pinged_at:
                missed_pings = 0
                self._is_silent(False, since=None)
                if self._version >= 1 and loop.time() - connection.last_received >= PING_AFTER:
                    pinged_at = loop.time()
                    connection.send(core.Ping(n=PING))
                continue
            missed_pings += 1
            if missed_pings == SILENT_CHECKS:
                self._is_silent(True, since=pinged_at)
            elif missed_pings == DEAD_CHECKS:
                connection.abort(f"silent for {DEAD_CHECKS * CHECK_SECONDS:.0f} s")

    def opened(self, connection: Connection) -> None:
        self._connection = connection
        self._leaving = False
        self._lost.clear()

    def received(self, connection: Connection, frame: core.Response) -> None:
        if type(frame) is core.Accepted:
            self._progress_at = connection.last_received
        elif type(frame) is core.ShutdownNotice:
            log.info("coreapp.leaving", extra={"address": self.address})
            self._leaving = True
            self._changed()
            self._close_if_left()
            return
        self._requests.resolve(frame.n, frame)

    def _close_if_left(self) -> None:
        """Close the connection to a Coreapp that stops, once no request is in flight."""
        if self._leaving and not self._requests.in_flight and self._connection is not None:
            self._connection.close("the Coreapp stops")

    def closed(self, connection: Connection, reason: str) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._requests.lost(reason)
        if self._connected:
            self._is_up(False)
            self._note(reason)
        self._lost.set()
        self._changed()

    async def _connect(self) -> None:
        host, _, port = self.address.rpartition(":")
        host = host.strip("[]")
        tls = self._calls.context_for(host)
        async with asyncio.timeout(CONNECT_TIMEOUT):
            connection = await connect(host, int(port), core.Response, self, tls=tls, turn=FRAMES_PER_ITERATION)
            response = await self._requests.call(
                connection, lambda n: core.Hello(n=n, key=self._key, version=core.LINK_VERSION), timeout=CONNECT_TIMEOUT
            )
        if not isinstance(response, core.Done):
            raise Disconnected(f"responded to Hello with {type(response).__name__}")
        self._version = response.version

    def _is_up(self, up: bool) -> None:
        CONNECTED.inc(up - self._connected)
        self._connected = up
        self._silent = False
        if up:
            self._failed_at = None
        elif self._failed_at is None:
            self._failed_at = self._loop.time()

    def _is_silent(self, silent: bool, *, since: float | None) -> None:
        """Record whether the Coreapp leaves calls without a response.

        since: loop time of the first such call; None if it responds
        """
        if silent != self._silent:
            self._silent = silent
            self._failed_at = since
            if silent:
                self._note("it does not respond")
            self._changed()

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("coreapp.away", extra={"address": self.address, "error": problem})
        self.problem = problem


def _cause(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "connection timed out"
    if isinstance(error, ssl.SSLError):
        return describe(error)
    # The system's text is used because event loops phrase it differently.
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
