"""The blobs of a scripted network, over real HTTP: what is stored, and answers as a test says."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import time
from typing import Any

from aiohttp import web

from tests.coreapp.signals import Signals
from tidings.e2ee import attachments

DAY = 24 * 3600


class ScriptedBlobs:
    """gate:     uploads and downloads wait for it once they have come.
    statuses: of HTTP, to answer the next calls with, `upload` or `download`.
    broken:   so many of the next downloads break off in their middle.
    """

    def __init__(self, signals: Signals) -> None:
        self.signals = signals
        self.stored: dict[str, bytes] = {}
        self.uploads = 0
        self.downloads = 0
        self.gate: asyncio.Event | None = None
        self.statuses: dict[str, int] = {}
        self.broken = 0
        self.lifetime = 14.0 * DAY
        self._names = itertools.count(1)

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/blobs/{number}", self._store)
        app.router.add_get("/v1/blobs/{number}/{id}", self._hand_out)

    def put(self, plaintext: bytes, mime_type: str, **more: Any) -> dict[str, Any]:
        """A file as a recipient stores it; returns the media object that goes into a message."""
        key = attachments.generate_key()
        blob, digest = attachments.encrypt(key, plaintext)
        name = f"theirs-{next(self._names)}"
        self.stored[name] = blob
        return {
            "blob": name,
            "key": base64.b64encode(key).decode(),
            "digest": base64.b64encode(digest).decode(),
            "size": len(plaintext),
            "mime_type": mime_type,
            "sha256": hashlib.sha256(plaintext).hexdigest(),
            **more,
        }

    def read(self, pointer: Any) -> bytes:
        """What a recipient's handset makes of a pointer."""
        blob = self.stored[pointer["blob"]]
        plaintext = attachments.decrypt(base64.b64decode(pointer["key"]), base64.b64decode(pointer["digest"]), blob)
        assert len(plaintext) == pointer["size"]
        assert hashlib.sha256(plaintext).hexdigest() == pointer["sha256"]
        return plaintext

    async def _store(self, request: web.Request) -> web.Response:
        body = b"".join([chunk async for chunk in request.content.iter_any()])
        self.uploads += 1
        self.signals.changed()
        if self.gate is not None:
            await self.gate.wait()
        if "upload" in self.statuses:
            return web.json_response({"error": {"reason": "scripted"}}, status=self.statuses["upload"])
        name = f"ours-{next(self._names)}"
        self.stored[name] = body
        expires_at = int(time.time() + self.lifetime)
        return web.json_response({"id": name, "size": len(body), "expires_at": expires_at}, status=201)

    async def _hand_out(self, request: web.Request) -> web.StreamResponse:
        self.downloads += 1
        self.signals.changed()
        if self.gate is not None:
            await self.gate.wait()
        if "download" in self.statuses:
            return web.json_response({"error": {"reason": "scripted"}}, status=self.statuses["download"])
        found = self.stored.get(request.match_info["id"])
        if found is None:
            return web.json_response({"error": {"reason": "not_found"}}, status=404)
        if self.broken:
            self.broken -= 1
            answer = web.StreamResponse()
            answer.content_length = len(found)
            await answer.prepare(request)
            await answer.write(found[: len(found) // 2])
            assert request.transport is not None
            request.transport.close()
            return answer
        return web.Response(body=found)
