"""Webhook that counts the events of each message and the invalid signatures."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from harness import polling

STATUSES = frozenset(("sent", "delivered", "read"))


class CountingWebhook:
    """Webhook of an emulator."""

    def __init__(self) -> None:
        self.url = ""
        self.secret = b""
        self.status = 200  # of its responses
        self.forged = 0
        self.statuses: dict[str, set[str]] = collections.defaultdict(set)  # accepted ones, by message
        self.codes: dict[str, int] = {}  # codes of failed messages
        self.attempts: collections.Counter[bytes] = collections.Counter()  # posts by body

    def complete(self) -> int:
        """Return the number of messages with all three statuses."""
        return sum(found >= STATUSES for found in self.statuses.values())

    async def until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds; return whether it does."""

        async def on_the_loop() -> bool:
            return holds()

        with contextlib.suppress(TimeoutError):
            await polling.until(on_the_loop, seconds=seconds, pause=0.02)
        return holds()

    async def verify(self, request: web.Request) -> web.Response:
        return web.Response(text=request.query.get("hub.challenge", ""))

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        made = "sha256=" + hmac.new(self.secret, body, hashlib.sha256).hexdigest()
        self.forged += not hmac.compare_digest(made, request.headers.get("X-Hub-Signature-256", ""))
        self.attempts[body] += 1
        if self.status == 200:
            for entry in json.loads(body).get("entry", ()):
                for change in entry["changes"]:
                    for status in change["value"].get("statuses", ()):
                        self.statuses[status["id"]].add(status["status"])
                        for error in status.get("errors", ()):
                            self.codes[status["id"]] = error["code"]
        return web.Response(status=self.status)


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[CountingWebhook]:
    webhook = CountingWebhook()
    app = web.Application(client_max_size=2**26)
    app.router.add_get("/", webhook.verify)
    app.router.add_post("/", webhook.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        webhook.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        yield webhook
    finally:
        await runner.cleanup()
