"""`python -m benchmarks.flood FILE`: many clients in a separate process that send at a given rate whatever happens.

The argument is a file with one JSON object, `Orders`. The process writes its results, `Happened` in MessagePack, to the
file named there. A watcher (`"watch": true`) polls `/v1/health` and sends a message at intervals instead, so that its
times are not those of an overloaded client.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import uvloop

from benchmarks.rig import contents
from harness.client import Business
from harness.http_connection import Connection, NoResponse

# Connections that are opened at a time: below the limit of unauthenticated connections per address.
CONNECTING = 16
# Seconds between two health checks of a watcher; health checks per message.
HEALTH, MESSAGE = 0.05, 2


class FloodParameters(msgspec.Struct):
    """Parameters of a flood."""

    ports: list[int]  # of Webapps
    token: str
    clients: int
    rate: float  # messages per second of all clients together
    seconds: float
    start: float  # Unix seconds
    numbers: list[str]
    label: str  # prefix of the texts
    output: str  # path of the results
    watch: bool = False


class Request(msgspec.Struct, array_like=True):
    """One message."""

    number: str
    digest: str
    status: int  # of the HTTP response; 0 for none
    id: str
    started: float  # Unix seconds
    took: float  # seconds


class HealthCheck(msgspec.Struct, array_like=True):
    """One health check."""

    status: int  # of the HTTP response; 0 for none
    started: float  # Unix seconds
    took: float  # seconds


class FloodResult(msgspec.Struct):
    """Results of a flood."""

    requests: list[Request]
    health_checks: list[HealthCheck]
    late: int  # requests that a client skipped because its previous one had no response when they were due


class Flood:
    """Clients with one connection each, which send at individual times."""

    def __init__(self, parameters: FloodParameters) -> None:
        self._parameters = parameters
        self._business = Business(*parameters.ports)
        self._business.use(parameters.token)
        self._count = 0
        self.result = FloodResult([], [], 0)

    async def run(self) -> None:
        """Connect, then send until the end. Raises `NoResponse` when a client gets no connection."""
        slots = asyncio.Semaphore(CONNECTING)
        # Authenticates each connection, because unauthenticated ones are limited.
        request = self._business.request("GET", "/v1/settings/application", b"")

        async def connect() -> Connection:
            async with slots:
                connection = await self._business.connect()
                await connection.request(request)
                return connection

        connections = await asyncio.gather(*(connect() for _ in range(self._parameters.clients)))
        gc.collect()
        gc.freeze()
        await asyncio.sleep(max(0.0, self._parameters.start - time.time()))
        send = self._watch if self._parameters.watch else self._send
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(send(connection))
        for connection in connections:
            connection.close()

    async def _send(self, connection: Connection) -> None:
        parameters = self._parameters
        period = parameters.clients / parameters.rate
        due, end = parameters.start + random.random() * period, parameters.start + parameters.seconds
        # A client that still waits for a response at the end of the flood sends nothing more.
        while due < end and time.time() < end:
            wait = due - time.time()
            if wait > 0:
                await asyncio.sleep(wait)
            elif wait < -period:
                # The client waited longer than a period for a response: skip the requests that it missed.
                missed = int(-wait / period)
                self.result.late += missed
                due += missed * period
            due += period
            connection = await self._post(connection)

    async def _watch(self, connection: Connection) -> None:
        """Check health and send messages at even intervals, however long earlier ones take.

        Uses as many connections as that needs.
        """
        parameters = self._parameters
        idle = [connection]

        async def on_one(action: Callable[[Connection], Awaitable[Connection]]) -> None:
            usable = idle.pop() if idle else await self._business.connect()
            idle.append(await action(usable))

        async with asyncio.TaskGroup() as group:
            for step in range(round(parameters.seconds / HEALTH)):
                await asyncio.sleep(max(0.0, parameters.start + step * HEALTH - time.time()))
                group.create_task(on_one(self._check_health))
                if step % MESSAGE == 0:
                    group.create_task(on_one(self._post))
        for connection in idle:
            connection.close()

    async def _check_health(self, connection: Connection) -> Connection:
        """Check health once; return the connection for the next check."""
        wall, began = time.time(), time.perf_counter()
        try:
            if not connection.usable:
                connection = await self._business.connect()
            status, _ = await connection.request(self._business.request("GET", "/v1/health", b""))
        except NoResponse:
            status = 0
        self.result.health_checks.append(HealthCheck(status, wall, time.perf_counter() - began))
        return connection

    async def _post(self, connection: Connection) -> Connection:
        """Send the next message, on a new connection if this one is broken; return the connection to use next."""
        parameters, self._count = self._parameters, self._count + 1
        number = parameters.numbers[self._count % len(parameters.numbers)]
        message = contents.text(number, f"{parameters.label} {self._count}: ")
        try:
            if not connection.usable:
                connection = await self._business.connect()
        except NoResponse:
            self.result.requests.append(Request(number, message.digest, 0, "", time.time(), 0.0))
            return connection
        sent = await self._business.post(connection, message)
        found = sent.request
        self.result.requests.append(
            Request(number, found.digest, found.status or 0, found.message_id, sent.started, sent.took)
        )
        return connection


def main() -> None:
    parameters = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=FloodParameters)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        flood = Flood(parameters)
        runner.run(flood.run())
    Path(parameters.output).write_bytes(msgspec.msgpack.encode(flood.result))


if __name__ == "__main__":
    main()
