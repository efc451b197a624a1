"""Cloud API that acts as a test scripts it, over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.coreapp.signals import Signals
from tests.web_server import serving

PHONE_NUMBER_ID, WABA_ID = "106540352242922", "102290129340398"
TOKEN, APP_SECRET, CALLBACK_SECRET, VERIFY_TOKEN = "T0KEN", "app secret", "callback-secret", "verify"
HOLD, CUT = "hold", "cut"  # answers: none yet, or a closed connection

Answer = tuple[int, Any] | str | None


def refused(code: int, message: str = "Title", status: int = 400, **more: Any) -> Answer:
    """Return the answer with an error of the Graph API."""
    return status, {"error": {"message": f"(#{code}) {message}", "type": "OAuthException", "code": code, **more}}


class ScriptedCloud:
    """Phone number of the Cloud API."""

    def __init__(self) -> None:
        self.signals = Signals()
        # Returns `None` to accept a message, another answer otherwise.
        self.policy: Callable[[dict[str, Any]], Answer] = lambda body: None
        self.posts: list[dict[str, Any]] = []  # messages, in the order of their arrival
        self.marks: list[dict[str, Any]] = []  # read marks
        self.tokens: list[str] = []
        self.in_flight = self.most_in_flight = 0
        self.released = asyncio.Event()
        self.url = ""
        self._web = contextlib.AsyncExitStack()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/v25.0/{number}/messages", self._take)
        self.url = f"{await self._web.enter_async_context(serving(app))}/v25.0"

    async def stop(self) -> None:
        self.released.set()
        await self._web.aclose()

    def to(self, peer: str) -> list[dict[str, Any]]:
        """Return the posts to one recipient."""
        return [post for post in self.posts if post["to"] == peer]

    async def _take(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.tokens.append(request.headers["Authorization"].removeprefix("Bearer "))
        if body.get("status") == "read":
            self.marks.append(body)
            self.signals.changed()
            return web.json_response({"success": True})
        self.posts.append(body)
        wamid = f"wamid.{len(self.posts)}="
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.signals.changed()
        try:
            answer = self.policy(body)
            if answer == HOLD:
                await self.released.wait()
                answer = None
        finally:
            self.in_flight -= 1
        if answer == CUT:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if isinstance(answer, tuple):
            text = answer[1] if isinstance(answer[1], str) else json.dumps(answer[1])
            return web.Response(status=answer[0], text=text, content_type="application/json")
        contact = {"input": body["to"], "wa_id": body["to"]}
        return web.json_response({"messaging_product": "whatsapp", "contacts": [contact], "messages": [{"id": wamid}]})
