"""Calls about profile and PIN of a scripted phone number, over real HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Protocol

from aiohttp import web

HOLD, CUT = "hold", "cut"  # responses: none yet, or a closed connection

ScriptedResponse = tuple[int, str] | str | None

APP_ID = "554433221100"
JPEG = b"\xff\xd8\xff\xe0" + bytes(range(256)) * 40


class Holding(Protocol):
    released: asyncio.Event  # ends calls that are held


class ScriptedProfile:
    """Profile and PIN of a number, as the Cloud API has them."""

    def __init__(self, cloud: Holding) -> None:
        self._cloud = cloud
        self.fields: dict[str, Any] = {}  # set fields, under the Cloud API's names
        self.photo = b""
        self.photo_status = 200
        self.pins: list[str] = []
        self.posts: list[dict[str, Any]] = []  # bodies of changes
        self.reads = 0
        self.token_reads = 0
        self.uploads: list[tuple[dict[str, str], dict[str, str], bytes]] = []  # query, headers and bytes
        self.response: ScriptedResponse = None  # instead of an accepted change
        self.shown: ScriptedResponse = None  # instead of the profile
        self.upload_response: ScriptedResponse = None  # instead of the handle of an upload
        self.read_gate: asyncio.Event | None = None  # holds a read that has its response already
        self.photo_tokens: list[str | None] = []  # `Authorization` of downloads of the photo

    def add_to(self, app: web.Application, number: str) -> None:
        app.router.add_get(f"/v25.0/{number}/whatsapp_business_profile", self._show)
        app.router.add_post(f"/v25.0/{number}/whatsapp_business_profile", self._change)
        app.router.add_post(f"/v25.0/{number}", self._set_pin)
        app.router.add_get("/v25.0/debug_token", self._describe_token)
        app.router.add_post(f"/v25.0/{APP_ID}/uploads", self._start)
        app.router.add_post("/v25.0/upload:{session}", self._upload)
        app.router.add_get("/photos/{name}", self._give_photo)

    async def _show(self, request: web.Request) -> web.StreamResponse:
        self.reads += 1
        found = {name: value for name, value in self.fields.items() if value}
        if self.photo:
            found["profile_picture_url"] = f"http://{request.host}/photos/one?hash=1"
        usual = {"data": [{"vertical": "UNDEFINED", **found, "messaging_product": "whatsapp"}]}
        if self.read_gate is not None:
            await self.read_gate.wait()
        return await self._reply(request, self.shown, usual)

    async def _change(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body.pop("messaging_product") == "whatsapp"
        self.posts.append(body)
        if self.response is None:
            if body.pop("profile_picture_handle", ""):
                self.photo = self.uploads[-1][2]
            self.fields |= body
        return await self._reply(request, self.response, {"success": True})

    async def _set_pin(self, request: web.Request) -> web.StreamResponse:
        self.pins.append((await request.json())["pin"])
        return await self._reply(request, self.response, {"success": True})

    async def _describe_token(self, request: web.Request) -> web.StreamResponse:
        self.token_reads += 1
        token = request.headers["Authorization"].removeprefix("Bearer ")
        assert request.query["input_token"] == token
        return web.json_response({"data": {"app_id": APP_ID, "is_valid": True}})

    async def _start(self, request: web.Request) -> web.StreamResponse:
        self.uploads.append((dict(request.query), {}, b""))
        return web.json_response({"id": "upload:MTphdHRh?sig=ARZ"})

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        assert request.query == {"sig": "ARZ"}
        self.uploads[-1] = (self.uploads[-1][0], dict(request.headers), await request.read())
        return await self._reply(request, self.upload_response, {"h": "4::aW1h"})

    async def _give_photo(self, request: web.Request) -> web.StreamResponse:
        self.photo_tokens.append(request.headers.get("Authorization"))
        return web.Response(status=self.photo_status, body=self.photo, content_type="image/jpeg")

    async def _reply(self, request: web.Request, response: ScriptedResponse, usual: Any) -> web.StreamResponse:
        if response == HOLD:
            await self._cloud.released.wait()
        elif response == CUT:
            assert request.transport is not None
            request.transport.close()
        status, text = response if isinstance(response, tuple) else (200, json.dumps(usual))
        return web.Response(status=status, text=text, content_type="application/json")
