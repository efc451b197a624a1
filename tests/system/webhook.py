"""Webhook for a business on real processes: it accepts everything, and lets tests wait for a body."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web

from tests.web_server import serving

SECONDS = 30.0


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[tuple[Webhook, str]]:
    """Yield a webhook and its URL."""
    webhook = Webhook()
    app = web.Application()
    app.router.add_post("/", webhook.take)
    async with serving(app) as url:
        yield webhook, f"{url}/"


class Webhook:
    """Webhook that keeps every body posted."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._news = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        self.bodies.append(json.loads(await request.read()))
        self._news.set()
        return web.Response()

    async def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            while True:
                for body in self.bodies:
                    if holds(body):
                        return body
                self._news.clear()
                await self._news.wait()

    async def all_read(self, count: int) -> None:
        """Wait until `count` messages have been read."""
        read: set[str] = set()

        def is_last(body: dict[str, Any]) -> bool:
            read.update(status["id"] for status in body.get("statuses", ()) if status["status"] == "read")
            return len(read) == count

        await self.until(is_last)

    async def received(self, kind: str) -> dict[str, Any]:
        """Wait for the first inbound message of a type, and return it."""
        body = await self.until(lambda body: body.get("messages", [{}])[0].get("type") == kind)
        found: dict[str, Any] = body["messages"][0]
        return found
