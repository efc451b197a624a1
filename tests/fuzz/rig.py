"""A whole system to be fuzzed: started, logged in and given one of each thing that a request may name."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from benchmarks.harness.installation import Installation

API_KEY = "fuzz-the-monitoring-key"
READER, UNKNOWN = "15550110001", "15550160001"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """token: of an administrator; it is never logged out."""

    url: str
    token: str
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
    async with _webhook() as webhook, Installation(directory, None, environment) as installation:
        await installation.start()
        business = await installation.business()
        await business.set_webhook(webhook)
        await business.must("POST", "/v1/contacts", {"blocking": "wait", "contacts": [f"+{READER}", f"+{UNKNOWN}"]})
        yield Target(f"http://127.0.0.1:{installation.api_port}", business.token, installation)


@asynccontextmanager
async def _webhook() -> AsyncIterator[str]:
    """An address that takes everything."""

    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response()

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()
