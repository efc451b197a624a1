"""Calls that change the templates of a scripted WABA, over real HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Protocol

from aiohttp import web

HOLD, CUT = "hold", "cut"  # responses: none yet, or a closed connection

ScriptedResponse = tuple[int, str] | str | None


class Listed(Protocol):
    """WABA whose templates are listed."""

    templates: list[dict[str, Any]]
    released: asyncio.Event  # ends calls that are held


class ScriptedTemplates:
    """Creates, edits, shows and deletes templates as the Cloud API does. Their ids begin with 8."""

    def __init__(self, waba: Listed) -> None:
        self._waba = waba
        self.calls: list[tuple[str, dict[str, str], Any]] = []  # method, query and body of each change
        self.response: ScriptedResponse = None  # instead of an accepted change
        self.shown: ScriptedResponse = None  # instead of the template by its id
        self.retry_after = ""
        self.is_lost = False  # whether a change that is held or cut is made all the same

    def add_to(self, app: web.Application, waba_id: str) -> None:
        app.router.add_post(f"/v25.0/{waba_id}/message_templates", self._create)
        app.router.add_delete(f"/v25.0/{waba_id}/message_templates", self._delete)
        app.router.add_post("/v25.0/{template:8[0-9]*}", self._edit)
        app.router.add_get("/v25.0/{template:8[0-9]*}", self._show)

    async def _create(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self._note(request, body)
        made = {"id": str(8_000 + len(self.calls)), "status": "PENDING", "category": body["category"]}
        if self.response is None or self.is_lost:
            self._waba.templates = [*self._waba.templates, {"parameter_format": "POSITIONAL", **body, **made}]
        return await self._reply(request, self.response, made)

    async def _edit(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self._note(request, body)
        if self.response is None:
            self._find(request).update({**body, "status": "PENDING"})
        return await self._reply(request, self.response, {"success": True})

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        self._note(request, None)
        query = request.query
        if self.response is None:
            self._waba.templates = [
                one
                for one in self._waba.templates
                if one["name"] != query["name"] or query.get("hsm_id", one["id"]) != one["id"]
            ]
        return await self._reply(request, self.response, {"success": True})

    async def _show(self, request: web.Request) -> web.StreamResponse:
        return await self._reply(request, self.shown, self._find(request))

    def _note(self, request: web.Request, body: Any) -> None:
        self.calls.append((request.method, dict(request.query), body))

    def _find(self, request: web.Request) -> dict[str, Any]:
        return next(one for one in self._waba.templates if one["id"] == request.match_info["template"])

    async def _reply(self, request: web.Request, response: ScriptedResponse, usual: Any) -> web.StreamResponse:
        if response == HOLD:
            await self._waba.released.wait()
        elif response == CUT:
            assert request.transport is not None
            request.transport.close()
        status, text = response if isinstance(response, tuple) else (200, json.dumps(usual))
        headers = {"Retry-After": self.retry_after} if self.retry_after else {}
        return web.Response(status=status, text=text, content_type="application/json", headers=headers)
