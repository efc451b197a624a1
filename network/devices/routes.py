"""HTTP endpoints of registered devices."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from network import http
from network.context import NetworkContext
from network.devices import keys
from network.devices.keys import RemainingKeys
from network.devices.registrations import Registrations
from network.errors import BadRequest, NotFound, TooOften, Unauthorized
from tidings.http.limited_protocol import mark_authenticated
from tidings.storage.database import Connection
from tidings.storage.network import directory
from tidings.wire import addresses, registration

# Maximum body with a PIN, bytes.
MAX_LOCK_BODY = 4 * 1024
MAX_BLOCKED = 1000  # Numbers that one device may block.


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceEndpoints:
    """Endpoints of registered devices; each requires the device's token."""

    context: NetworkContext
    registrations: Registrations

    def routes(self) -> APIRouter:
        """Return the router with all endpoints."""
        router = APIRouter(prefix="/v1")
        for method, path, endpoint in (
            ("DELETE", "/registrations/{number}", self.unregister),
            ("PUT", "/locks/{number}", self.lock),
            ("DELETE", "/locks/{number}", self.unlock),
            ("PUT", "/keys/{number}", self.upload_keys),
            ("GET", "/keys/{number}", self.count_keys),
            ("PUT", "/blocks/{number}/{other}", self.block),
            ("DELETE", "/blocks/{number}/{other}", self.unblock),
        ):
            router.add_api_route(path, endpoint, methods=[method])
        return router

    async def unregister(self, request: Request, number: str) -> JSONResponse:
        token = http.bearer(request)
        try:
            await self._authenticate(request, number)
        except Unauthorized:
            if not await self.registrations.was_unregistered(number, token):
                raise
            mark_authenticated(request.scope)
        else:
            await self.registrations.unregister(number, token)
        return JSONResponse({"number": number, "registered": False})

    async def lock(self, request: Request, number: str) -> JSONResponse:
        await self._authenticate(request, number)
        body = await http.read_body(request, registration.LockRequest, limit=MAX_LOCK_BODY)
        await self.registrations.locks.set(number, body.pin)
        return JSONResponse({"number": number, "locked": True})

    async def unlock(self, request: Request, number: str) -> JSONResponse:
        await self._authenticate(request, number)
        await self.registrations.locks.remove(number)
        return JSONResponse({"number": number, "locked": False})

    async def upload_keys(self, request: Request, number: str) -> JSONResponse:
        await self._authenticate(request, number)
        self._take("keys", number, "too many uploads of keys")
        body = await http.read_body(request, registration.KeyUpload)
        return JSONResponse(_show_remaining(await keys.upload(self.context, number, http.bearer(request), body)))

    async def count_keys(self, request: Request, number: str) -> JSONResponse:
        await self._authenticate(request, number)
        return JSONResponse(_show_remaining(await keys.list_remaining(self.context, number)))

    async def block(self, request: Request, number: str, other: str) -> JSONResponse:
        await self._authenticate(request, number)
        self._take("block", number, "too many changes of blocks")
        _require_number(other)

        async def work(connection: Connection) -> None:
            await directory.block(connection, number, other)
            if await directory.count_blocks(connection, number) > MAX_BLOCKED:
                raise BadRequest(f"at most {MAX_BLOCKED} numbers can be blocked", reason="too_many")

        await self.context.database.persist(work, retry_seconds=20)
        await self.context.directory.blocks_changed(number)
        return JSONResponse({"number": number, "other": other, "blocked": True})

    async def unblock(self, request: Request, number: str, other: str) -> JSONResponse:
        await self._authenticate(request, number)
        self._take("block", number, "too many changes of blocks")
        _require_number(other)
        await self.context.database.persist(lambda c: directory.unblock(c, number, other), retry_seconds=20)
        await self.context.directory.blocks_changed(number)
        return JSONResponse({"number": number, "other": other, "blocked": False})

    async def _authenticate(self, request: Request, number: str) -> None:
        _require_number(number)
        await http.require_device(request, self.context.directory.logins, number)

    def _take(self, call: str, number: str, detail: str) -> None:
        """Consume a token of the device for this call. Raises `TooOften`."""
        if wait := self.context.directory.rate_limits.take(call, number):
            raise TooOften(detail, retry_after=math.ceil(wait))


def _require_number(text: str) -> None:
    if not addresses.is_number(text):
        raise NotFound(f"{text!r} is not a number of 7 to 15 digits")


def _show_remaining(left: RemainingKeys) -> dict[str, Any]:
    return {
        "prekeys": len(left.prekeys),
        "kyber_prekeys": len(left.kyber_prekeys),
        "prekey_ids": left.prekeys,
        "kyber_prekey_ids": left.kyber_prekeys,
    }
