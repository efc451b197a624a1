"""Blobs of a scripted network, over real HTTP: stored files, and responses set by the test."""

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
    """Blob server of the scripted network."""

    def __init__(self, signals: Signals) -> None:
        self.signals = signals
        self.stored: dict[str, bytes] = {}
        self.uploads = 0
        self.downloads = 0
        self.gate: asyncio.Event | None = None  # uploads and downloads wait for it; None for no wait
        self.statuses: dict[str, int] = {}  # HTTP statuses of the next `upload` or `download`
        self.broken = 0  # number of the next downloads that break off
        self.lifetime = 14.0 * DAY  # seconds
        self._names = itertools.count(1)

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/blobs/{number}", self._store)
        app.router.add_get("/v1/blobs/{number}/{id}", self._hand_out)

    def put(self, plaintext: bytes, mime_type: str, **more: Any) -> dict[str, Any]:
        """Store a file as a recipient does, and return the media object for a message."""
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
        """Return the file that a pointer refers to, after checking it as a recipient's handset does."""
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
            response = web.StreamResponse()
            response.content_length = len(found)
            await response.prepare(request)
            await response.write(found[: len(found) // 2])
            assert request.transport is not None
            request.transport.close()
            return response
        return web.Response(body=found)
