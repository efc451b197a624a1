"""A whole system to be fuzzed: started, logged in and given one of each thing that a request may name."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from benchmarks.harness.installation import Installation

API_KEY = "fuzz-the-monitoring-key"
READER, ECHO, UNKNOWN = "15550110001", "15550140001", "15550160001"
SECONDS = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """token: of an administrator; it is never logged out. inbound: the id of a message that somebody sent."""

    url: str
    token: str
    inbound: str
    installation: Installation


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Target]:
    """SQLite, robots and no rate limits; what is written lies in `directory`."""
    environment = {
        "TIDINGS_ROBOTS_PER_KIND": "2",
        "TIDINGS_MESSAGES_RATE": "0",
        "TIDINGS_CONTACTS_RATE": "0",
        "WA_API_KEY": API_KEY,
    }
    async with _webhook() as (webhook, inbound), Installation(directory, None, environment) as installation:
        await installation.start()
        business = await installation.business()
        await business.set_webhook(webhook)
        await business.must("POST", "/v1/contacts", {"blocking": "wait", "contacts": [READER, ECHO, UNKNOWN]})
        await business.must("POST", "/v1/messages", {"to": ECHO, "type": "text", "text": {"body": "Hello"}})
        async with asyncio.timeout(SECONDS):
            answered = await inbound
        yield Target(f"http://127.0.0.1:{installation.api_port}", business.token, answered, installation)


@asynccontextmanager
async def _webhook() -> AsyncIterator[tuple[str, asyncio.Future[str]]]:
    """An address that takes everything, and the id of the first message that it is told of."""
    first: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def take(request: web.Request) -> web.Response:
        messages = json.loads(await request.read()).get("messages")
        if messages and not first.done():
            first.set_result(messages[0]["id"])
        return web.Response()

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/", first
    finally:
        await runner.cleanup()
