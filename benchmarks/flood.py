"""`python -m benchmarks.flood FILE`: many clients in a process of their own that send at a rate whatever comes of it.

Its argument is a file with one JSON object, `Orders`; it writes what happened to the file named there, `Happened` in
MessagePack. The watcher (`"watch": true`) asks for `/v1/health` and sends a message every now and then instead, so that
its times are not those of a client that has too much to do.
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
from harness.http_connection import Connection, NoAnswer

# Connections that are made at the same time: fewer than of strangers there may be from one address.
CONNECTING = 16
# Seconds between two looks of a watcher at health; looks for each of its messages.
HEALTH, MESSAGE = 0.05, 2


class Orders(msgspec.Struct):
    """ports: of Webapps. rate: messages a second of all clients together, from `start` (Unix seconds) for `seconds`.

    label: of the texts; output: where what happened goes.
    """

    ports: list[int]
    token: str
    clients: int
    rate: float
    seconds: float
    start: float
    numbers: list[str]
    label: str
    output: str
    watch: bool = False


class Request(msgspec.Struct, array_like=True):
    """One message. status: 0 for no answer; started: Unix seconds; took: seconds."""

    number: str
    digest: str
    status: int
    id: str
    started: float
    took: float


class Look(msgspec.Struct, array_like=True):
    """One look at health; as above."""

    status: int
    started: float
    took: float


class Happened(msgspec.Struct):
    """late: requests that a client could not send when they were due, since its last one had no answer yet."""

    requests: list[Request]
    looks: list[Look]
    late: int


class Flood:
    """Clients with a connection each, every one of which sends in its own rhythm."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._business = Business(*orders.ports)
        self._business.use(orders.token)
        self._count = 0
        self.happened = Happened([], [], 0)

    async def run(self) -> None:
        """All of it. Raises `NoAnswer` when not every client gets a connection."""
        slots = asyncio.Semaphore(CONNECTING)
        # Connections that do not say who they are may be few.
        request = self._business.request("GET", "/v1/settings/application", b"")

        async def connect() -> Connection:
            async with slots:
                connection = await self._business.connect()
                await connection.ask(request)
                return connection

        connections = await asyncio.gather(*(connect() for _ in range(self._orders.clients)))
        gc.collect()
        gc.freeze()
        await asyncio.sleep(max(0.0, self._orders.start - time.time()))
        send = self._watch if self._orders.watch else self._send
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(send(connection))
        for connection in connections:
            connection.close()

    async def _send(self, connection: Connection) -> None:
        orders = self._orders
        period = orders.clients / orders.rate
        due, end = orders.start + random.random() * period, orders.start + orders.seconds
        # Whoever still waits for an answer when the flood ends sends nothing after it.
        while due < end and time.time() < end:
            wait = due - time.time()
            if wait > 0:
                await asyncio.sleep(wait)
            elif wait < -period:
                # Whoever waited that long for an answer has missed turns.
                missed = int(-wait / period)
                self.happened.late += missed
                due += missed * period
            due += period
            connection = await self._post(connection)

    async def _watch(self, connection: Connection) -> None:
        """Look at health and send messages in even steps, however long the ones before take, on as many connections as
        that needs."""
        orders = self._orders
        idle = [connection]

        async def on_one(action: Callable[[Connection], Awaitable[Connection]]) -> None:
            usable = idle.pop() if idle else await self._business.connect()
            idle.append(await action(usable))

        async with asyncio.TaskGroup() as group:
            for step in range(round(orders.seconds / HEALTH)):
                await asyncio.sleep(max(0.0, orders.start + step * HEALTH - time.time()))
                group.create_task(on_one(self._look))
                if step % MESSAGE == 0:
                    group.create_task(on_one(self._post))
        for connection in idle:
            connection.close()

    async def _look(self, connection: Connection) -> Connection:
        """One look at health; the connection for the next."""
        wall, began = time.time(), time.perf_counter()
        try:
            if not connection.usable:
                connection = await self._business.connect()
            status, _ = await connection.ask(self._business.request("GET", "/v1/health", b""))
        except NoAnswer:
            status = 0
        self.happened.looks.append(Look(status, wall, time.perf_counter() - began))
        return connection

    async def _post(self, connection: Connection) -> Connection:
        """Send the next message, on another connection if this one is broken; the connection for the one after."""
        orders, self._count = self._orders, self._count + 1
        number = orders.numbers[self._count % len(orders.numbers)]
        message = contents.text(number, f"{orders.label} {self._count}: ")
        try:
            if not connection.usable:
                connection = await self._business.connect()
        except NoAnswer:
            self.happened.requests.append(Request(number, message.digest, 0, "", time.time(), 0.0))
            return connection
        sent = await self._business.post(connection, message)
        found = sent.request
        self.happened.requests.append(
            Request(number, found.digest, found.status or 0, found.message_id, sent.started, sent.took)
        )
        return connection


def main() -> None:
    orders = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Orders)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        flood = Flood(orders)
        runner.run(flood.run())
    Path(orders.output).write_bytes(msgspec.msgpack.encode(flood.happened))


if __name__ == "__main__":
    main()
