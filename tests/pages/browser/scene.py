"""Installation with a page of handsets, and a business that sends to it through the API."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
from playwright.async_api import Browser, Page, StorageState, expect

from harness import polling
from harness.client import Business
from harness.installation import Installation
from harness.mariadb import free_port
from harness.processes import Process, inherited
from tests.media_samples import PNG
from tests.system.webhook import Webhook, listening

DATA = Path(__file__).parents[2] / "data" / "api"
ACCOUNT = "15550000000"
FIRST = 15550600001  # number of the first phone; further ones follow
PICTURE = "00000000-0000-4000-8000-000000000001"  # stored picture of the examples
VARIABLES = {"TIDINGS_ROBOTS_PER_KIND": "1", "TIDINGS_CLOUD_API": "1", "TIDINGS_TESTING": "1", "TIDINGS_CONSOLE": "1"}


class Scene:
    """Running installation: processes by name, business, webhook, and the address of the page with handsets."""

    def __init__(self, installation: Installation, webhook: Webhook, webhook_url: str) -> None:
        self.installation = installation
        self.webhook = webhook
        self.webhook_url = webhook_url
        port = free_port()
        variables = {**installation.common, "TIDINGS_HANDSET_WEB_ADDRESS": f"127.0.0.1:{port}"}
        self.handset = Process("handset", "handset", variables, installation.directory, arguments=["--web"])
        self.handset_url = f"http://127.0.0.1:{port}/handset"
        self.session: StorageState  # of a browser that has entered
        self.business: Business
        self.picture: str  # id of a stored picture
        self._numbers = itertools.count(FIRST)

    def process(self, name: str) -> Process:
        """Return a process by its name, also that of the page."""
        return self.handset if name == "handset" else self.installation.processes[name]

    async def start(self, browser: Browser) -> None:
        """Start all processes, log the business in, and enter the page of handsets."""
        webapp = self.process("webapp")
        await self.installation.start(name for name in self.installation.processes if name != webapp.name)
        # With the key, the console deletes callbacks and shows messages.
        webapp.environment["TIDINGS_CONSOLE_KEY"] = await console_key(self.installation)
        await webapp.start()
        link = (await self.handset.start())["link"]
        self.business = await self.installation.business()
        await self.business.set_webhook(self.webhook_url)
        for definition in json.loads((DATA / "templates_good.json").read_text()):
            await self.business.check_call("POST", "/v1/configs/templates", definition)
        self.picture = await self.upload(PNG, "image/png")
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(link)
        await page.get_by_role("button", name="Open the phones").click()
        await expect(page.get_by_role("heading", name="Phones")).to_be_visible()
        self.session = await context.storage_state()
        await context.close()

    async def close_phones(self) -> None:
        """Close all open phones: a page has at most 20."""
        cookies = {cookie["name"]: cookie["value"] for cookie in self.session["cookies"]}
        async with httpx.AsyncClient(cookies=cookies, follow_redirects=True, timeout=30) as client:
            shown = (await client.get(self.handset_url)).text
            token = re.findall(r'name="csrf" value="([^"]+)"', shown)[0]
            for path in re.findall(r'action="/handset(/\d+/close)"', shown):
                closed = await client.post(f"{self.handset_url}{path}", data={"csrf": token})
                assert closed.status_code == 200

    def new_number(self) -> str:
        """Return an unregistered number."""
        return str(next(self._numbers))

    async def register(self, page: Page, *, name: str = "Ada", number: str = "") -> str:
        """Register a number on the page, which then shows its chats. Returns its digits."""
        number = number or self.new_number()
        await page.goto(self.handset_url)
        await page.get_by_label("Phone number").fill(f"+{number}")
        await page.get_by_label("Your name").fill(name)
        await page.get_by_role("button", name="Register").click()
        await expect(page.get_by_role("heading", name=f"+{number}")).to_be_visible()
        await self.business.check_contacts([number])
        return number

    def chat(self, number: str) -> str:
        """Return the URL of a phone's chat with the business."""
        return f"{self.handset_url}/{number}/chats/{ACCOUNT}"

    async def send(self, number: str, body: Mapping[str, Any]) -> str:
        """Send a message through the API. Returns its id."""
        response = await self.business.check_call("POST", "/v1/messages", {**body, "to": number})
        return str(response["messages"][0]["id"])

    async def say(self, number: str, text: str) -> str:
        """Send a text through the API. Returns its id."""
        return await self.send(number, {"type": "text", "text": {"body": text}})

    async def example(self, number: str, file: str, case: str) -> str:
        """Send an example of tests/data through the API. Returns its id."""
        text = (DATA / "messages" / f"{file}.json").read_text().replace(PICTURE, self.picture)
        text = re.sub(r'"image": \{"link": "[^"]*"\}', f'"image": {{"id": "{self.picture}"}}', text)
        return await self.send(number, json.loads(text)["good"][case]["body"])

    async def upload(self, data: bytes, mime_type: str) -> str:
        """Store a file through the API. Returns its id."""
        connection = await self.business.connect()
        try:
            request = self.business.request("POST", "/v1/media", data, mime_type=mime_type)
            status, response = await connection.request(request)
        finally:
            connection.close()
        assert status in (200, 201), response
        return str(msgspec.json.decode(response)["media"][0]["id"])

    async def statuses(self, message_id: str, *names: str) -> None:
        """Wait until the webhook has got these statuses of a message."""
        for name in names:
            await self.webhook.until(
                lambda body, name=name: any(
                    status["id"] == message_id and status["status"] == name for status in body.get("statuses", ())
                )
            )

    def seen_statuses(self, message_id: str) -> list[str]:
        """Return the statuses of a message that the webhook has got."""
        found = [status for body in self.webhook.bodies for status in body.get("statuses", ())]
        return [status["status"] for status in found if status["id"] == message_id]

    async def until_seen(self, message_id: str, status: str, count: int) -> None:
        """Wait until the webhook has got a status of a message `count` times."""
        await polling.until(lambda: self.seen_statuses(message_id).count(status) == count, pause=0.02)

    async def inbound(self, number: str, count: int = 1) -> Sequence[Mapping[str, Any]]:
        """Wait until the webhook has got as many messages of a number. Returns them."""
        async with asyncio.timeout(30):
            while True:
                found = [each for body in self.webhook.bodies for each in body.get("messages", ())]
                found = [each for each in found if each["from"] == number]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.05)


async def console_key(installation: Installation) -> str:
    """Return what `tidings keys console` prints."""
    command = [sys.executable, "-m", "cli.main", "keys", "console"]
    environment = {**inherited(), **installation.common}
    ended = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, check=True)
    return ended.stdout.decode().strip()


@contextlib.asynccontextmanager
async def running(directory: Path, browser: Browser) -> AsyncIterator[Scene]:
    """Run an installation with everything that tests of pages use."""
    async with listening() as (webhook, url), Installation(directory, None, VARIABLES) as installation:
        scene = Scene(installation, webhook, url)
        try:
            await scene.start(browser)
            yield scene
        finally:
            await scene.handset.stop()
