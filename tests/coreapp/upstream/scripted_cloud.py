"""Cloud API that acts as a test scripts it, over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Callable
from typing import Any

from aiohttp import BodyPartReader, web

from tests.coreapp.signals import Signals
from tests.coreapp.upstream.scripted_profile import ScriptedProfile
from tests.coreapp.upstream.scripted_templates import ScriptedTemplates
from tests.web_server import serving

PHONE_NUMBER_ID, WABA_ID = "106540352242922", "102290129340398"
TOKEN, APP_SECRET, CALLBACK_SECRET, VERIFY_TOKEN = "T0KEN", "app secret", "callback-secret", "verify"
HOLD, CUT = "hold", "cut"  # responses: none yet, or a closed connection

ScriptedResponse = tuple[int, Any] | str | None


def refused(code: int, message: str = "Title", status: int = 400, **more: Any) -> ScriptedResponse:
    """Return the response with an error of the Graph API."""
    return status, {"error": {"message": f"(#{code}) {message}", "type": "OAuthException", "code": code, **more}}


class ScriptedCloud:
    """Phone number of the Cloud API."""

    def __init__(self) -> None:
        self.signals = Signals()
        # Returns `None` to accept a message, another response otherwise.
        self.policy: Callable[[dict[str, Any]], ScriptedResponse] = lambda body: None
        self.posts: list[dict[str, Any]] = []  # messages, in the order of their arrival
        self.marks: list[dict[str, Any]] = []  # read marks
        self.tokens: list[str] = []
        self.in_flight = self.most_in_flight = 0
        self.released = asyncio.Event()
        self.held_response: ScriptedResponse = None  # the response after `released`
        # Uploaded files: fields of the form, with type and content of the file.
        self.uploads: list[dict[str, Any]] = []
        self.upload_policy: Callable[[], ScriptedResponse] = lambda: None
        self.files: dict[str, bytes] = {}  # files of recipients, by id
        self.file_status = 200
        self.file_failures = 0  # requests for files of recipients that get 503 before the others get their files
        self.templates: list[dict[str, Any]] = []
        self.template_response: tuple[int, str] | None = None  # instead of the templates
        self.template_changes = ScriptedTemplates(self)
        self.profile = ScriptedProfile(self)
        self.url = self._origin = ""
        self._web = contextlib.AsyncExitStack()

    async def start(self) -> None:
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_post("/v25.0/{number}/messages", self._take)
        app.router.add_post("/v25.0/{number}/media", self._upload)
        app.router.add_get(f"/v25.0/{WABA_ID}", self._describe_waba)
        app.router.add_get(f"/v25.0/{WABA_ID}/message_templates", self._list_templates)
        self.template_changes.add_to(app, WABA_ID)
        self.profile.add_to(app, PHONE_NUMBER_ID)
        app.router.add_get("/v25.0/{media}", self._describe_file)
        app.router.add_get("/files/{media}", self._give_file)
        self._origin = await self._web.enter_async_context(serving(app))
        self.url = f"{self._origin}/v25.0"

    async def stop(self) -> None:
        self.released.set()
        await self._web.aclose()

    def to(self, peer: str) -> list[dict[str, Any]]:
        """Return the posts to one recipient."""
        return [post for post in self.posts if post.get("to") == peer]

    async def _describe_waba(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"message_template_namespace": "9d1f930f_bea0_4e35", "id": WABA_ID})

    async def _list_templates(self, request: web.Request) -> web.StreamResponse:
        if self.template_response is not None:
            status, text = self.template_response
            return web.Response(status=status, text=text, content_type="application/json")
        start, limit = int(request.query.get("after", 0)), int(request.query["limit"])
        end = start + limit
        response: dict[str, Any] = {"data": self.templates[start:end]}
        if response["data"]:
            response["paging"] = {"cursors": {"before": str(start), "after": str(end)}}
            if end < len(self.templates):
                # Not to be called: it leads to another host.
                response["paging"]["next"] = "http://127.0.0.1:1/v25.0/next"
        return web.json_response(response)

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        found: dict[str, Any] = {}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            content = bytes(await part.read())
            if part.name == "file":
                found |= {"file": content, "filename": part.filename, "mime_type": part.headers["Content-Type"]}
            else:
                found[str(part.name)] = content.decode()
        self.uploads.append(found)
        self.signals.changed()
        response = self.upload_policy()
        if isinstance(response, tuple):
            return web.json_response(response[1], status=response[0])
        return web.json_response({"id": str(700 + len(self.uploads))})

    async def _describe_file(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        assert request.query["phone_number_id"] == PHONE_NUMBER_ID
        media = request.match_info["media"]
        if media not in self.files:
            error = {"message": "Unsupported get request.", "type": "GraphMethodException", "code": 100}
            return web.json_response({"error": {**error, "error_subcode": 33}}, status=400)
        content = self.files[media]
        described = {"url": f"{self._origin}/files/{media}", "mime_type": "image/png", "id": media}
        return web.json_response({**described, "sha256": hashlib.sha256(content).hexdigest()})

    async def _give_file(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        if self.file_failures:
            self.file_failures -= 1
            return web.Response(status=503)
        if self.file_status != 200:
            return web.Response(status=self.file_status)
        return web.Response(body=self.files[request.match_info["media"]], content_type="image/png")

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
            response = self.policy(body)
            if response == HOLD:
                await self.released.wait()
                response = self.held_response
        finally:
            self.in_flight -= 1
        if response == CUT:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if isinstance(response, tuple):
            text = response[1] if isinstance(response[1], str) else json.dumps(response[1])
            return web.Response(status=response[0], text=text, content_type="application/json")
        if "to" in body:
            contact = {"input": body["to"], "wa_id": body["to"]}
        else:
            contact = {"input": body["recipient"], "user_id": body["recipient"]}
        return web.json_response({"messaging_product": "whatsapp", "contacts": [contact], "messages": [{"id": wamid}]})
