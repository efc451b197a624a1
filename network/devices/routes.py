"""The HTTP endpoints of devices."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from network import http
from network.devices.blocks import Blocks
from network.devices.codes import Codes
from network.devices.keys import Keys, Left
from network.devices.registrations import Registrations
from network.directory.logins import Logins
from network.errors import NotFound
from tidings.wire import addresses, registration

# 500 devices with 100 one-time pre-keys each come to about 5 MB.
MAX_BULK_BODY = 8 * 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """What the endpoints call."""

    codes: Codes
    registrations: Registrations
    keys: Keys
    blocks: Blocks
    logins: Logins
    registration_key: str


def make_routes(service: Service) -> APIRouter:
    """All endpoints."""
    routes = APIRouter(prefix="/v1")

    @routes.post("/codes")
    async def send_code(request: Request) -> JSONResponse:
        body = await http.read_body(request, registration.CodeRequest)
        await service.codes.issue(body.number)
        return JSONResponse({"number": body.number}, 202)

    @routes.post("/registrations")
    async def register(request: Request) -> JSONResponse:
        body = await http.read_body(request, registration.DeviceRegistration)
        # Whoever has the token of this registration need prove nothing else.
        if await service.registrations.are_made([body]):
            return JSONResponse({"number": body.number, "token": body.token}, 201)
        if body.code:
            await service.codes.redeem(body.number, body.code)
        else:
            http.require_key(request, service.registration_key)
        (token,) = await service.registrations.register([body])
        return JSONResponse({"number": body.number, "token": token}, 201)

    @routes.post("/registrations/bulk")
    async def register_many(request: Request) -> JSONResponse:
        http.require_key(request, service.registration_key)
        body = await http.read_body(request, registration.BulkRegistration, limit=MAX_BULK_BODY)
        tokens = await service.registrations.register(body.registrations)
        registered = [
            {"number": device.number, "token": token} for device, token in zip(body.registrations, tokens, strict=True)
        ]
        return JSONResponse({"registrations": registered}, 201)

    @routes.delete("/registrations/{number}")
    async def unregister(request: Request, number: str) -> JSONResponse:
        await _authenticate(request, number)
        await service.registrations.unregister(number)
        return JSONResponse({"number": number, "registered": False})

    @routes.put("/keys/{number}")
    async def upload_keys(request: Request, number: str) -> JSONResponse:
        await _authenticate(request, number)
        body = await http.read_body(request, registration.KeyUpload)
        return JSONResponse(_left(await service.keys.upload(number, body)))

    @routes.get("/keys/{number}")
    async def count_keys(request: Request, number: str) -> JSONResponse:
        await _authenticate(request, number)
        return JSONResponse(_left(await service.keys.list_left(number)))

    @routes.put("/blocks/{number}/{other}")
    async def block(request: Request, number: str, other: str) -> JSONResponse:
        await _authenticate(request, number)
        _require_number(other)
        await service.blocks.block(number, other)
        return JSONResponse({"number": number, "other": other, "blocked": True})

    @routes.delete("/blocks/{number}/{other}")
    async def unblock(request: Request, number: str, other: str) -> JSONResponse:
        await _authenticate(request, number)
        _require_number(other)
        await service.blocks.unblock(number, other)
        return JSONResponse({"number": number, "other": other, "blocked": False})

    async def _authenticate(request: Request, number: str) -> None:
        _require_number(number)
        await http.require_device(request, service.logins, number)

    return routes


def _require_number(text: str) -> None:
    if not addresses.is_number(text):
        raise NotFound(f"{text!r} is no number: 7 to 15 digits")


def _left(left: Left) -> dict[str, Any]:
    return {
        "prekeys": len(left.prekeys),
        "kyber_prekeys": len(left.kyber_prekeys),
        "prekey_ids": left.prekeys,
        "kyber_prekey_ids": left.kyber_prekeys,
    }
