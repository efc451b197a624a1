"""A connection to one Coreapp: made, lost, made again, and questions asked over it."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import ssl
from collections.abc import Callable

from prometheus_client import Counter, Gauge

from tidings.runtime import service
from tidings.runtime.exposure import ON_THIS_MACHINE, LinkCalls
from tidings.runtime.places import Crowded, Places
from tidings.runtime.tls import describe
from tidings.wire import core
from tidings.wire.connection import MAX_FRAME, Connection, Disconnected, FrameTooLong, NotSent, connect
from tidings.wire.requests import Requests, TooManyQuestions
from webapp.coreapps import Make
from webapp.errors import CoreappAway, CoreappUnreachable, Overloaded, QuestionTooLarge

log = logging.getLogger(__name__)

CONNECTED = Gauge("tidings_webapp_coreapps_connected", "Coreapps that this Webapp is connected to")
SHED = Counter("tidings_webapp_messages_shed_total", "Messages refused because others waited too long for their turn")

# Seconds in which no message was accepted, after which the Coreapp is stuck for those that wait to be.
STALL = 4.5
# Seconds between attempts to connect, and for one attempt.
FIRST_RETRY, LAST_RETRY, CONNECT_TIMEOUT = 0.05, 1.0, 5.0
# Seconds between two looks whether a Coreapp has said anything, and of silence after which it is asked for a word.
PULSE, QUIET = 0.25, 0.5
# Looks without an answer after which it is asked no more, and after which the connection is given up: 1 s and 5 s. They
# are counted because it may be we who stood still.
SILENT, DEAD = 4, 20
# Of a question that nobody waits for.
PING = 0
# Messages that a Coreapp is handed at a time, some batches of its journal, so that what else it is asked does not wait
# for thousands of them; and the seconds that others wait for their turn, until nobody joins them.
MESSAGES, PATIENCE = 256, 1.0
# Answers that are taken in one turn of the loop: each is a request that goes on, and a commit brings a hundred of them.
TURN = 64


class Peer:
    """One Coreapp: connects, connects again, asks."""

    def __init__(
        self,
        address: str,
        key: str,
        changed: Callable[[], None],
        *,
        stall: float = STALL,
        calls: LinkCalls = ON_THIS_MACHINE,
    ) -> None:
        """calls: how the Coreapp is checked."""
        self._calls = calls
        self.address = address
        self.problem = "connecting"
        self._key = key
        self._changed = changed
        self._stall = stall
        self._requests: Requests[core.Answer] = Requests()
        self._messages = Places(MESSAGES, patience=PATIENCE)
        self._connection: Connection | None = None
        self._lost = asyncio.Event()
        self._greeted = False
        self._silent = False
        # Whether the Coreapp has announced its stop: the connection ends with the last answer.
        self._leaving = False
        self._version = 0
        self._wanted = True
        # The loop's time of the latest accepted message.
        self._progress_at = -math.inf

    @property
    def is_ready(self) -> bool:
        """Connected, and nothing speaks against an answer. What is asked of one that stands still may be done later."""
        return self._greeted and not self._silent and not self._leaving

    def is_crowded(self, delay: float) -> bool:
        """Do messages wait for their turn for too long, if they wait so many seconds before they come here?"""
        return self._messages.is_crowded(delay)

    @property
    def knows_repeats(self) -> bool:
        """False for an earlier release, which would accept a message twice that it is asked for again."""
        return self._version >= 1

    @property
    def knows_its_contacts(self) -> bool:
        """False for an earlier release, of which the owner of the first shard alone is asked for contacts."""
        return self._version >= 2

    async def run(self) -> None:
        """Until cancelled, or retired and disconnected."""
        delay = FIRST_RETRY
        try:
            while self._wanted:
                try:
                    await self._connect()
                except (OSError, TimeoutError, ValueError, Disconnected) as error:
                    self._note(_cause(error))
                    if self._connection is not None:
                        self._connection.abort("not greeted")
                else:
                    delay = FIRST_RETRY
                    self._is_up(True)
                    log.info("coreapp.connected", extra={"address": self.address})
                    self._changed()
                    await self._attend()
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311
                delay = min(delay * 2, LAST_RETRY)
        finally:
            self._is_up(False)
            if self._connection is not None:
                self._connection.close("not needed any more")

    def retire(self) -> None:
        """What was asked may still be answered, but once the connection is lost there will be no other."""
        self._wanted = False

    async def send(self, make: Make, timeout: float) -> core.Answer:
        """Ask it to accept a message, in its turn. As `ask`, but given up after `stall` seconds when no message was
        accepted in that time either: a Coreapp that is slow because it has much to do is waited for."""
        try:
            await self._messages.take()
        except Crowded:
            SHED.inc()
            raise Overloaded("more messages come than can be accepted") from None
        try:
            if not self.is_ready:
                # Since it was this one's turn to wait.
                raise CoreappUnreachable(f"the Coreapp at {self.address} does not answer")
            return await self.ask(make, timeout, soon=True)
        finally:
            self._messages.give_back()

    async def ask(self, make: Make, timeout: float, *, soon: bool = False) -> core.Answer:
        """Raises `CoreappAway` when no answer comes; whether the question was acted upon is then unknown.

        A question that was not sent raises `CoreappUnreachable`, `Overloaded` when too many are in flight, and
        `QuestionTooLarge` when the Coreapp would close the connection over it.
        """
        connection = self._connection if not self._leaving else None
        loop = asyncio.get_running_loop()
        asked = loop.time()
        # Without progress; with it a message has at least `stall` seconds, also one that waited long to be asked.
        patience, limit = min(timeout, self._stall), max(timeout, self._stall)

        def longer() -> float:
            return min(self._progress_at + patience, asked + limit) - loop.time()

        try:
            if soon:
                return await self._requests.ask(connection, make, timeout=patience, longer=longer)
            return await self._requests.ask(connection, make, timeout=timeout)
        except FrameTooLong:
            raise QuestionTooLarge(MAX_FRAME) from None
        except TooManyQuestions as error:
            raise Overloaded(f"the Coreapp at {self.address}: {error}") from None
        except NotSent as error:
            raise CoreappUnreachable(f"the Coreapp at {self.address} cannot be reached: {error}") from None
        except Disconnected as error:
            raise CoreappAway(f"the Coreapp at {self.address} went away before it answered: {error}") from None
        except TimeoutError:
            seconds = f"{loop.time() - asked:.1f}"
            raise CoreappAway(f"the Coreapp at {self.address}: connection timed out after {seconds} s") from None
        finally:
            self._close_if_left()

    async def _attend(self) -> None:
        """Watch whether the Coreapp is there, until the connection is lost.

        One that is stopped or cut off closes no connection, and what it is asked is neither done nor refused.
        """
        loop = asyncio.get_running_loop()
        pinged_at, unanswered = -math.inf, 0
        while not await service.wait_for(self._lost, PULSE):
            connection = self._connection
            if connection is None:
                return
            if connection.last_received >= pinged_at:
                unanswered = 0
                self._is_silent(False)
                if self._version >= 1 and loop.time() - connection.last_received >= QUIET:
                    pinged_at = loop.time()
                    connection.send(core.Ping(n=PING))
                continue
            unanswered += 1
            if unanswered == SILENT:
                self._is_silent(True)
            elif unanswered == DEAD:
                connection.abort(f"silent for {DEAD * PULSE:.0f} s")

    def opened(self, connection: Connection) -> None:
        self._connection = connection
        self._leaving = False
        self._lost.clear()

    def received(self, connection: Connection, frame: core.Answer) -> None:
        if type(frame) is core.Accepted:
            self._progress_at = connection.last_received
        elif type(frame) is core.Leaving:
            log.info("coreapp.leaving", extra={"address": self.address})
            self._leaving = True
            self._changed()
            self._close_if_left()
            return
        self._requests.answered(frame.n, frame)

    def _close_if_left(self) -> None:
        """Close the connection to a Coreapp that stops, once nothing is asked of it any more."""
        if self._leaving and not self._requests.in_flight and self._connection is not None:
            self._connection.close("the Coreapp stops")

    def closed(self, connection: Connection, reason: str) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._requests.lost(reason)
        if self._greeted:
            self._is_up(False)
            self._note(reason)
        self._lost.set()
        self._changed()

    async def _connect(self) -> None:
        host, _, port = self.address.rpartition(":")
        host = host.strip("[]")
        tls = self._calls.context_for(host)
        async with asyncio.timeout(CONNECT_TIMEOUT):
            connection = await connect(host, int(port), core.Answer, self, tls=tls, turn=TURN)
            answer = await self._requests.ask(
                connection, lambda n: core.Hello(n=n, key=self._key, version=core.LINK_VERSION), timeout=CONNECT_TIMEOUT
            )
        if not isinstance(answer, core.Done):
            raise Disconnected(f"greeted with {type(answer).__name__}")
        self._version = answer.version

    def _is_up(self, up: bool) -> None:
        CONNECTED.inc(up - self._greeted)
        self._greeted = up
        self._silent = False

    def _is_silent(self, silent: bool) -> None:
        if silent != self._silent:
            self._silent = silent
            if silent:
                self._note("it does not answer")
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
    # The text of the system, because event loops differ in theirs.
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
