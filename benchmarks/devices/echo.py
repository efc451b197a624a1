"""Echoes through the whole system: a recipient's message arrives at the webhook, whose owner replies to it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from aiohttp import web

from benchmarks.rig import stage, summary
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.session import Session
from benchmarks.rig.stage import Scene
from handset.robots.behaviours import Behaviour, number_of
from harness.client import Business
from harness.http_connection import Connection

# Concurrent conversations; the result is the highest number that stays within the limit.
CONVERSATIONS = (8, 32, 128, 512)
SIZE = 2048
LIMIT = 1000.0  # milliseconds
TIMEOUT = 60.0  # seconds


class Echo:
    """Webhook that replies to every message."""

    def __init__(self, business: Business) -> None:
        self._business = business
        self._idle: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._came: dict[str, float] = {}
        self._faults: list[str] = []
        self.times: list[float] = []  # seconds between consecutive messages of a recipient
        self.open = 0  # conversations
        self.replies = True

    async def begin(self, numbers: Sequence[str]) -> None:
        """Send the first message to each of these numbers."""
        for number in numbers:
            self._came[number] = time.monotonic()
            self.open += 1
            await self._send(number)

    async def take(self, request: web.Request) -> web.Response:
        """Handle one callback."""
        for message in msgspec.json.decode(await request.read()).get("messages", ()):
            number, now = message["from"], time.monotonic()
            self.times.append(now - self._came[number])
            self._came[number] = now
            if self.replies:
                task = asyncio.create_task(self._send(number))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                self.open -= 1
        return web.Response()

    async def _send(self, number: str) -> None:
        connection = self._idle.pop() if self._idle else await self._business.connect()
        sent = await self._business.send(connection, number, "x" * SIZE)
        if not sent.request.accepted:
            self._faults.append(f"{number}: {sent.request.status}")
        if connection.usable:
            self._idle.append(connection)

    async def end(self) -> None:
        """Wait for the last message of each recipient. Raises `RunFailed` when one does not arrive."""
        self.replies = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT):
                while self.open and not self._faults:  # noqa: ASYNC110 (recipients end one by one)
                    await asyncio.sleep(0.05)
        for connection in self._idle:
            connection.close()
        if self.open or self._faults:
            raise RunFailed(f"{self.open} recipients are silent: {self._faults[:3]}")


@contextlib.asynccontextmanager
async def serving(scene: Scene) -> AsyncIterator[Echo]:
    """Serve an echo, and set it as the installation's webhook."""
    echo = Echo(scene.business)
    app = web.Application()
    app.router.add_post("/callback", echo.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        await scene.business.set_webhook(f"http://127.0.0.1:{runner.addresses[0][1]}/callback")
        yield echo
    finally:
        await runner.cleanup()


async def echoes(current: Session, conversations: int, seconds: float) -> Run:
    """Measure rounds of `conversations` concurrent conversations, each message a reply to the one before.

    Raises `RunFailed` and others.
    """
    settings: dict[str, Any] = {"TIDINGS_ROBOTS_KINDS": Behaviour.ECHOES.value}
    async with (
        stage.prepared(current, robots=max(CONVERSATIONS), environment=settings) as prepared,
        prepared.performance("echo") as scene,
        serving(scene) as echo,
    ):
        numbers = [number_of(Behaviour.ECHOES, index) for index in range(conversations)]
        await scene.business.check_contacts(numbers)
        await echo.begin(numbers)
        # Time for the sessions to be established in both directions.
        await asyncio.sleep(2.0)
        echo.times.clear()
        began = time.monotonic()
        async with scene.sampler() as sampler:
            await asyncio.sleep(seconds)
        count, took = len(echo.times), time.monotonic() - began
        times = list(echo.times)
        await echo.end()
    if not times:
        raise RunFailed("nothing came")
    return Run(
        name=f"echo-{conversations}",
        title=f"echoes of {conversations} recipients at a time",
        count=count,
        unit="echoes",
        seconds=took,
        rate=count / took,
        latencies={"a round": summary.summarise(times)},
        throughput=[count / took] * int(took),
        samples=sampler.samples,
        parameters={"conversations": conversations, "bytes": SIZE},
    )
