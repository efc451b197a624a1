"""The HTTP endpoints of devices."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from network import http
from network.devices.blocks import Blocks
from network.devices.codes import Codes
from network.devices.keys import KeyUploads, Left
from network.devices.rations import Rations
from network.devices.registrations import Registrations
from network.directory.logins import Logins
from network.errors import NotFound, Unauthorized
from tidings.wire import addresses, registration

# 500 devices with 100 one-time pre-keys each come to about 5 MB.
MAX_BULK_BODY = 8 * 1024 * 1024
# Of a request for a code, which anybody may send.
MAX_CODE_BODY = 4 * 1024


class DeviceEndpoints:
    """Endpoints of devices. Registering takes a code or the registration key, everything else the device's token."""

    def __init__(
        self,
        *,
        codes: Codes,
        rations: Rations,
        registrations: Registrations,
        keys: KeyUploads,
        blocks: Blocks,
        logins: Logins,
        registration_key: str,
        key_needs_certificate: bool = False,
    ) -> None:
        """key_needs_certificate: the registration key is taken from clients with a certificate only."""
        self._key_needs_certificate = key_needs_certificate
        self._codes = codes
        self._rations = rations
        self._registrations = registrations
        self._keys = keys
        self._blocks = blocks
        self._logins = logins
        self._registration_key = registration_key

    def routes(self) -> APIRouter:
        """All of them, each with its method and path."""
        router = APIRouter(prefix="/v1")
        for method, path, endpoint in (
            ("POST", "/codes", self.send_code),
            ("POST", "/registrations", self.register),
            ("POST", "/registrations/bulk", self.register_many),
            ("DELETE", "/registrations/{number}", self.unregister),
            ("PUT", "/keys/{number}", self.upload_keys),
            ("GET", "/keys/{number}", self.count_keys),
            ("PUT", "/blocks/{number}/{other}", self.block),
            ("DELETE", "/blocks/{number}/{other}", self.unblock),
        ):
            router.add_api_route(path, endpoint, methods=[method])
        return router

    def _has_key(self, request: Request, *, alone: bool) -> bool:
        """Does the caller prove that it holds the registration key? Raises `Unauthorized` where that is `alone`."""
        try:
            self._require_key(request)
        except Unauthorized:
            if alone:
                raise
            return False
        return True

    def _address(self, request: Request) -> str:
        peer = request.client.host if request.client is not None else ""
        return self._rations.address_of(peer, request.headers.get("x-forwarded-for"))

    async def send_code(self, request: Request) -> JSONResponse:
        body = await http.read_body(request, registration.CodeRequest, limit=MAX_CODE_BODY)
        self._rations.take_code(self._address(request))
        await self._codes.issue(body.number)
        return JSONResponse({"number": body.number}, 202)

    async def register(self, request: Request) -> JSONResponse:
        body = await http.read_body(request, registration.DeviceRegistration)
        if not body.code and self._has_key(request, alone=not body.token):
            (token,) = await self._registrations.register([body])
            return JSONResponse({"number": body.number, "token": token}, 201)
        address = self._address(request)
        self._rations.take_try(address)
        # Whoever has the token of this registration need prove nothing else.
        made = await self._registrations.are_made([body])
        if not made and body.code:
            await self._codes.redeem(body.number, body.code)
        elif not made:
            self._require_key(request)
        self._rations.was_right(address)
        if made:
            return JSONResponse({"number": body.number, "token": body.token}, 201)
        (token,) = await self._registrations.register([body])
        return JSONResponse({"number": body.number, "token": token}, 201)

    async def register_many(self, request: Request) -> JSONResponse:
        self._require_key(request)
        body = await http.read_body(request, registration.BulkRegistration, limit=MAX_BULK_BODY)
        tokens = await self._registrations.register(body.registrations)
        registered = [
            {"number": device.number, "token": token} for device, token in zip(body.registrations, tokens, strict=True)
        ]
        return JSONResponse({"registrations": registered}, 201)

    async def unregister(self, request: Request, number: str) -> JSONResponse:
        await self._authenticate(request, number)
        await self._registrations.unregister(number)
        return JSONResponse({"number": number, "registered": False})

    async def upload_keys(self, request: Request, number: str) -> JSONResponse:
        await self._authenticate(request, number)
        body = await http.read_body(request, registration.KeyUpload)
        return JSONResponse(_left(await self._keys.upload(number, body)))

    async def count_keys(self, request: Request, number: str) -> JSONResponse:
        await self._authenticate(request, number)
        return JSONResponse(_left(await self._keys.list_left(number)))

    async def block(self, request: Request, number: str, other: str) -> JSONResponse:
        await self._authenticate(request, number)
        _require_number(other)
        await self._blocks.block(number, other)
        return JSONResponse({"number": number, "other": other, "blocked": True})

    async def unblock(self, request: Request, number: str, other: str) -> JSONResponse:
        await self._authenticate(request, number)
        _require_number(other)
        await self._blocks.unblock(number, other)
        return JSONResponse({"number": number, "other": other, "blocked": False})

    def _require_key(self, request: Request) -> None:
        http.require_key(request, self._registration_key, certified=self._key_needs_certificate)

    async def _authenticate(self, request: Request, number: str) -> None:
        _require_number(number)
        await http.require_device(request, self._logins, number)


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
