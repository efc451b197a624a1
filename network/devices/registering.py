"""HTTP endpoints for the registration of numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Set

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from network import http
from network.devices.code_rate_limits import CodeRateLimits
from network.devices.codes import KEY_HOLDER, Codes
from network.devices.locks import Locks
from network.devices.registrations import Registrations
from network.errors import KeyRequired, Unauthorized
from tidings.wire import registration

# Maximum body of a bulk registration, bytes: 500 devices with 100 one-time pre-keys each take about 5 MB.
MAX_BULK_BODY = 8 * 1024 * 1024
# Maximum body of a request for a code, bytes; unauthenticated clients may send one.
MAX_CODE_BODY = 4 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class RegistrationKey:
    """Registration key of the installation."""

    key: str = dataclasses.field(repr=False)
    needs_certificate: bool = False  # The key is accepted only from clients with a certificate.

    def require(self, request: Request) -> None:
        """Raise `Unauthorized` unless the request carries the key."""
        http.require_key(request, self.key, certified=self.needs_certificate)

    def is_given(self, request: Request) -> bool:
        """Return whether the request carries the key."""
        try:
            self.require(request)
        except Unauthorized:
            return False
        return True


class RegistrationEndpoints:
    """Registrations by code, which need the PIN of a locked number, or by the registration key.

    The business's numbers always need the key: a code alone is never enough for them.
    """

    def __init__(
        self,
        *,
        codes: Codes,
        code_rate_limits: CodeRateLimits,
        locks: Locks,
        registrations: Registrations,
        key: RegistrationKey,
        businesses: Set[str],
    ) -> None:
        """businesses: numbers that register with the registration key only."""
        self._codes = codes
        self._code_rate_limits = code_rate_limits
        self._locks = locks
        self._registrations = registrations
        self._key = key
        self._businesses = businesses

    def routes(self) -> APIRouter:
        """Return the router with all endpoints."""
        router = APIRouter(prefix="/v1")
        for path, endpoint in (
            ("/codes", self.send_code),
            ("/registrations", self.register),
            ("/registrations/bulk", self.register_many),
        ):
            router.add_api_route(path, endpoint, methods=["POST"])
        return router

    async def send_code(self, request: Request) -> JSONResponse:
        body = await http.read_body(request, registration.CodeRequest, limit=MAX_CODE_BODY)
        if http.bearer(request):
            self._key.require(request)
            origin = KEY_HOLDER
        else:
            self._require_ordinary(body.number)
            origin = self._origin(request)
            self._code_rate_limits.take_code(origin)
        await self._codes.issue(body.number, origin)
        return JSONResponse({"number": body.number}, 202)

    async def register(self, request: Request) -> JSONResponse:
        body = await http.read_body(request, registration.DeviceRegistration)
        opened: dict[str, str] = {}
        if self._key.is_given(request):
            if body.code and not await self._registrations.are_made([body]):
                await self._codes.check(body.number, KEY_HOLDER, body.code)
                await self._codes.use(body.number, KEY_HOLDER, body.code)
        elif not body.code and not body.token:
            self._key.require(request)
        else:
            origin = self._origin(request)
            self._code_rate_limits.take_try(origin)
            # The token of this registration is sufficient proof for repeating it.
            made = await self._registrations.are_made([body])
            if not made:
                opened = {body.number: await self._prove(request, body, origin)}
            self._code_rate_limits.was_right(origin)
            if made:
                return JSONResponse({"number": body.number, "token": body.token}, 201)
        (token,) = await self._registrations.register([body], opened=opened)
        return JSONResponse({"number": body.number, "token": token}, 201)

    async def register_many(self, request: Request) -> JSONResponse:
        self._key.require(request)
        body = await http.read_body(request, registration.BulkRegistration, limit=MAX_BULK_BODY)
        tokens = await self._registrations.register(body.registrations)
        registered = [
            {"number": device.number, "token": token} for device, token in zip(body.registrations, tokens, strict=True)
        ]
        return JSONResponse({"registrations": registered}, 201)

    async def _prove(self, request: Request, body: registration.DeviceRegistration, origin: str) -> str:
        """Check code and PIN of a registration without the key; return the hash of the lock that the PIN opened.

        The PIN is checked only after the right code, so a wrong code does not reveal whether there is a lock.
        """
        if http.bearer(request) or not body.code:
            self._key.require(request)
        self._require_ordinary(body.number)
        await self._codes.check(body.number, origin, body.code)
        opened = await self._locks.open(body.number, body.pin)
        await self._codes.use(body.number, origin, body.code)
        return opened

    def _require_ordinary(self, number: str) -> None:
        """Raise `KeyRequired` for a number of the business."""
        if number in self._businesses:
            raise KeyRequired("a number of the business is registered with the registration key only")

    def _origin(self, request: Request) -> str:
        peer = request.client.host if request.client is not None else ""
        return self._code_rate_limits.origin_of(peer, request.headers.get("x-forwarded-for"))
