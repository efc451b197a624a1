"""Whole system to be fuzzed: started, logged in, with one of each thing that a request may name."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from harness.installation import Installation
from tests.web_server import serving

API_KEY = "fuzz-the-monitoring-key"
ECHO, UNKNOWN = "15550140001", "15550160001"
# Robots that read what they get and follow invitations to groups. Not the robot of the examples, which is removed
# early.
PARTICIPANTS = ("15550110002", "15550110003")
SECONDS = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Running system, and the things in it that requests name."""

    url: str
    token: str  # of an administrator; never logged out
    inbound: str  # id of an inbound message
    group: str  # id of a group with PARTICIPANTS
    webhook: str  # URL of a webhook that accepts everything
    installation: Installation


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Target]:
    """Run a system on SQLite with robots and without rate limits. Its files are in `directory`."""
    environment = {
        "TIDINGS_ROBOTS_PER_KIND": "4",
        "TIDINGS_MESSAGES_RATE": "0",
        "TIDINGS_CONTACTS_RATE": "0",
        "WA_API_KEY": API_KEY,
        "TIDINGS_CLOUD_API": "1",
    }
    async with _webhook() as webhook, Installation(directory, None, environment) as installation:
        await installation.start()
        business = await installation.business()
        await business.set_webhook(webhook.url)
        await business.check_call(
            "POST", "/v1/contacts", {"blocking": "wait", "contacts": [*PARTICIPANTS, ECHO, UNKNOWN]}
        )
        await business.check_call("POST", "/v1/messages", {"to": ECHO, "type": "text", "text": {"body": "Hello"}})
        group = (await business.check_call("POST", "/v1/groups", {"subject": "Tuesday deliveries"}))["groups"][0]["id"]
        link = (await business.check_call("GET", f"/v1/groups/{group}/invite"))["groups"][0]["link"]
        for number in PARTICIPANTS:
            await business.check_call("POST", "/v1/messages", {"to": number, "type": "text", "text": {"body": link}})
        async with asyncio.timeout(SECONDS):
            inbound = await webhook.inbound_id
            await webhook.joined
        url = f"http://127.0.0.1:{installation.api_port}"
        yield Target(url, business.token, inbound, group, webhook.url, installation)


class Webhook:
    """Webhook that accepts everything."""

    def __init__(self) -> None:
        self.url = ""
        loop = asyncio.get_running_loop()
        self.inbound_id: asyncio.Future[str] = loop.create_future()  # id of the first inbound message
        self.joined: asyncio.Future[None] = loop.create_future()  # set when all PARTICIPANTS are in a group
        self._missing = set(PARTICIPANTS)

    async def verify(self, request: web.Request) -> web.Response:
        """Respond to the verification of a callback of the Cloud API."""
        return web.Response(text=request.query.get("hub.challenge", ""))

    async def take(self, request: web.Request) -> web.Response:
        for message in json.loads(await request.read()).get("messages", ()):
            if message["type"] == "text" and not self.inbound_id.done():
                self.inbound_id.set_result(message["id"])
            if message["type"] == "system":
                self._missing -= {number for number in PARTICIPANTS if number in json.dumps(message)}
                if not self._missing and not self.joined.done():
                    self.joined.set_result(None)
        return web.Response()


@asynccontextmanager
async def _webhook() -> AsyncIterator[Webhook]:
    webhook = Webhook()
    app = web.Application(client_max_size=2**26)
    app.router.add_get("/", webhook.verify)
    app.router.add_post("/", webhook.take)
    async with serving(app) as url:
        webhook.url = f"{url}/"
        yield webhook
