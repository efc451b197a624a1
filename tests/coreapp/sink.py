"""Webhook on a real socket that responds as the test sets, and verifies every signature independently."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from harness.webhook_body import Verifier
from tests.coreapp.signals import Signals
from tests.web_server import serving

SECRET = "whsec_" + base64.b64encode(b"a secret of exactly 32 bytes....").decode()


@dataclasses.dataclass
class Post:
    """One request received."""

    event_id: str
    body: dict[str, Any]
    status: int | None
    timestamp: int
    headers: Mapping[str, str]

    @property
    def label(self) -> tuple[str, str]:
        """Return (message id, what happened to it) of the only event."""
        (label,) = self.labels
        return label

    @property
    def labels(self) -> list[tuple[str, str]]:
        """Return (message id, what happened to it) of each event."""
        if "statuses" in self.body:
            return [(entry["id"], entry["status"]) for entry in self.body["statuses"]]
        if "messages" in self.body:
            return [(self.body["messages"][0]["id"], "received")]
        return [("", "contacts")]

    @property
    def event_ids(self) -> list[str]:
        """Return the id of each event."""
        return [entry.get("event_id", self.event_id) for entry in self.body.get("statuses", [{}])]


class Sink:
    """Webhook server.

    respond(post): returns the status to respond with, or a coroutine of it; an exception cuts the connection.
    """

    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        self.signals = Signals()
        self.posts: list[Post] = []
        self.respond: Callable[[Post], int | Awaitable[int]] = lambda post: 200
        self.text = "ok"  # content of each response
        self.in_flight = 0
        self.most_in_flight = 0
        self.redirected = 0
        self.verifier = Verifier(SECRET)
        self.url = ""
        self._ssl_context = ssl_context
        self._server = contextlib.AsyncExitStack()

    async def start(self) -> None:
        app = web.Application(client_max_size=10_000_000)
        app.router.add_post("/hook", self._hook)
        app.router.add_route("*", "/elsewhere", self._elsewhere)
        url = await self._server.enter_async_context(serving(app, self._ssl_context))
        self.url = f"{url}/hook"

    async def stop(self) -> None:
        await self._server.aclose()

    def taken(self) -> list[Post]:
        """Return the posts that got a 200."""
        return [post for post in self.posts if post.status == 200]

    def labels(self) -> list[tuple[str, str]]:
        return [label for post in self.taken() for label in post.labels]

    def statuses_of(self, message_id: str) -> list[str]:
        return [status for other, status in self.labels() if other == message_id]

    async def _elsewhere(self, request: web.Request) -> web.Response:
        self.redirected += 1
        return web.Response()

    async def _hook(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        assert self.verifier.is_valid({name.lower(): value for name, value in request.raw_headers}, body)
        assert request.headers["Content-Type"] == "application/json"
        post = Post(
            request.headers["webhook-id"],
            json.loads(body),
            None,
            int(request.headers["webhook-timestamp"]),
            request.headers,
        )
        self.posts.append(post)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.signals.changed()
        try:
            code = self.respond(post)
            status = code if isinstance(code, int) else await code
        except ConnectionResetError:
            assert request.transport is not None
            request.transport.abort()
            raise asyncio.CancelledError from None
        finally:
            self.in_flight -= 1
            self.signals.changed()
        headers = {"Location": "/elsewhere"} if 300 <= status < 400 else {}
        response = web.Response(status=status, headers=headers, text=self.text)
        await response.prepare(request)
        post.status = status
        await response.write_eof()
        self.signals.changed()
        return response
