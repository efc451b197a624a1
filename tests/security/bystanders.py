"""`python -m tests.security.bystanders`: other users of an installation under attack, in a separate process.

    webapp      GET /v1/health with a token, each on a new connection
    logins      POST /v1/users/login with the right password, each on a new connection
    network     GET /health of the network, each on a new connection
    messages    POST /v1/messages on one kept connection, until the response
    read        the same, until the webhook was notified that the recipient read it
    device      a device sends to another one, until that one has decrypted it

The parent holds one end of a socket, `--control-fd`, over which it sends requests, one JSON object per line: `open`,
`begin` and `end`. The process ends with the socket.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from aiohttp import web

from harness.client import Business, Connection
from tidings.client.memory_device import MemoryDevice
from tidings.wire import content

# Seconds between the end of one request and the start of the next, and the longest wait for one.
PACE = 0.05
TIMEOUT = 45.0
DEVICES = ("15550190001", "15550190002")


class Waited(msgspec.Struct):
    """Seconds that each request took, whatever its outcome, and the requests that were refused or failed."""

    took: list[float] = []
    refusals: list[str] = []


class Refused(Exception):
    """Response that a bystander does not expect."""


class Device(MemoryDevice):
    """Device that records what it has received."""

    def __init__(self, url: str, number: str) -> None:
        super().__init__(url, number)
        self.online = asyncio.Event()
        self.come: dict[str, asyncio.Event] = {}

    def ready(self) -> None:
        self.online.set()

    def received(self, peer: str, plaintext: bytes) -> None:
        text = content.decode(plaintext).text
        if text is not None and text.body in self.come:
            self.come[text.body].set()


class Bystanders:
    """All bystanders."""

    def __init__(self, where: dict[str, Any]) -> None:
        self._business = Business(where["api_port"])
        self._business.use(where["token"])
        self._network = Business(int(where["network_url"].rpartition(":")[2]))
        self._readers = itertools.cycle(where["readers"])
        self._url, self._key = where["network_url"], where["registration_key"]
        self._numbers = itertools.count(1)
        self._kept: dict[str, Connection] = {}
        self._read: dict[str, asyncio.Event] = {}
        self._read_before: set[str] = set()
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._waited: dict[str, Waited] = {}
        self._uses: dict[str, Callable[[], Awaitable[None]]] = {
            "webapp": self._use_webapp,
            "logins": self._use_logins,
            "network": self._use_network,
            "messages": self._use_messages,
            "read": self._use_read,
            "device": self._use_device,
        }

    async def open(self) -> str:
        """Register the devices and listen for callbacks. Returns the URL for callbacks."""
        self._devices = [Device(self._url, number) for number in DEVICES]
        self._connected = []
        for device in self._devices:
            await device.register(self._key)
            self._connected.append(asyncio.create_task(device.run(asyncio.Event())))
            await device.online.wait()
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/", self._take)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/"

    def begin(self, kinds: Sequence[str]) -> None:
        self._stop.clear()
        self._waited = {kind: Waited([], []) for kind in kinds}
        self._tasks = [asyncio.create_task(self._use(kind)) for kind in kinds]

    async def end(self) -> dict[str, Waited]:
        self._stop.set()
        await asyncio.gather(*self._tasks)
        return self._waited

    async def _use(self, kind: str) -> None:
        waited, use = self._waited[kind], self._uses[kind]
        while not self._stop.is_set():
            started = time.perf_counter()
            try:
                async with asyncio.timeout(TIMEOUT):
                    await use()
            except Exception as error:
                waited.refusals.append(f"{type(error).__name__}: {error}")
            waited.took.append(time.perf_counter() - started)
            try:
                async with asyncio.timeout(PACE):
                    await self._stop.wait()
            except TimeoutError:
                pass

    async def _use_webapp(self) -> None:
        status, response = await self._business.call("GET", "/v1/health")
        _expect(status, 200, response)

    async def _use_logins(self) -> None:
        await self._business.log_in()

    async def _use_network(self) -> None:
        status, response = await self._network.call("GET", "/health", authorization=b"none")
        _expect(status, 200, response)

    async def _use_messages(self) -> None:
        await self._send("messages")

    async def _use_read(self) -> None:
        message_id = await self._send("read")
        if message_id not in self._read_before:
            self._read[message_id] = event = asyncio.Event()
            await event.wait()
            del self._read[message_id]
        self._read_before.discard(message_id)

    async def _send(self, kind: str) -> str:
        kept = self._kept.get(kind)
        if kept is None or not kept.usable:
            kept = self._kept[kind] = await self._business.connect()
        try:
            sent = await self._business.send(kept, next(self._readers), f"message {next(self._numbers)}")
        except asyncio.CancelledError:
            kept.close()  # its response, when it comes, belongs to no request
            raise
        _expect(sent.request.status or 0, 201, "no answer" if sent.request.status is None else "")
        return sent.request.message_id

    async def _use_device(self) -> None:
        sender, receiver = self._devices
        text = f"text {next(self._numbers)}"
        receiver.come[text] = event = asyncio.Event()
        await sender.send(receiver.number, content.encode_text(text))
        await event.wait()
        del receiver.come[text]

    async def _take(self, request: web.Request) -> web.Response:
        for status in json.loads(await request.read()).get("statuses", ()):
            if status["status"] == "read":
                event = self._read.get(status["id"])
                if event is not None:
                    event.set()
                else:
                    self._read_before.add(status["id"])
        return web.Response()


def _expect(status: int, expected: int, response: Any) -> None:
    if status != expected:
        raise Refused(f"{status} {response}")


async def _serve(control: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=control)
    bystanders: Bystanders | None = None
    async for line in reader:
        order = json.loads(line)
        response: Any = None
        if order["do"] == "open":
            bystanders = Bystanders(order["where"])
            response = await bystanders.open()
        assert bystanders is not None
        if order["do"] == "begin":
            bystanders.begin(order["kinds"])
        if order["do"] == "end":
            response = await bystanders.end()
        writer.write(msgspec.json.encode(response) + b"\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--control-fd", type=int, required=True)
    control = socket.socket(fileno=parser.parse_args().control_fd)
    control.setblocking(False)
    asyncio.run(_serve(control))


if __name__ == "__main__":
    main()
