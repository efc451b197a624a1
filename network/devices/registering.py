"""HTTP endpoints for the registration of numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Set

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from prometheus_client import Counter

from network import http
from network.devices.codes import KEY_HOLDER, Codes
from network.devices.registrations import Registrations
from network.errors import KeyRequired, RateLimited, Unauthorized
from tidings.aio.clock import Clock
from tidings.aio.token_buckets import TokenBuckets
from tidings.http.limited_protocol import consume, mark_authenticated
from tidings.net.unauthenticated import REMEMBERED, key_of
from tidings.wire import registration

# Maximum body of a bulk registration, bytes: 500 devices with 100 one-time pre-keys each take about 5 MB.
MAX_BULK_BODY = 8 * 1024 * 1024
# Maximum body of a request for a code, bytes; unauthenticated clients may send one.
MAX_CODE_BODY = 4 * 1024
# Codes that one address may request at once, and seconds until it may request another.
CODES_EACH, SECONDS_EACH = 20, 30
# Registrations without proof that one address may try at once, and seconds until it may try another.
TRIES_EACH, TRY_SECONDS_EACH = 10, 60

REFUSED = Counter(
    "tidings_network_codes_refused_total", "Refused requests for codes and refused attempts with codes", ["what"]
)
CODE_REFUSED, TRY_REFUSED = REFUSED.labels("code"), REFUSED.labels("try")


@dataclasses.dataclass(frozen=True, slots=True)
class RegistrationKey:
    """Registration key of the installation."""

    key: str = dataclasses.field(repr=False)
    needs_certificate: bool = False  # Whether the key is accepted only from clients with a certificate.

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


@dataclasses.dataclass(slots=True, eq=False)
class RegistrationEndpoints:
    """Registrations by code, which need the PIN of a locked number, or by the registration key.

    The business's numbers always need the key: a code alone is never enough for them. A person's handset that has the
    key cannot register them.

    Code requests and tries are rate-limited by address, in memory: a restart fills the buckets. Addresses share no
    bucket, so one address cannot exhaust the limit of another. The limit on guesses for one number, from all addresses
    together, is stored with the number (`network.devices.codes`).
    """

    registrations: Registrations
    codes: Codes
    key: RegistrationKey
    clock: dataclasses.InitVar[Clock]
    # Numbers that register with the registration key only.
    businesses: Set[str] = frozenset()
    _code_requests: TokenBuckets[str] = dataclasses.field(init=False)
    _tries: TokenBuckets[str] = dataclasses.field(init=False)

    def __post_init__(self, clock: Clock) -> None:
        self._code_requests = _buckets(clock, CODES_EACH, SECONDS_EACH)
        self._tries = _buckets(clock, TRIES_EACH, TRY_SECONDS_EACH)

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
            self.key.require(request)
            origin = KEY_HOLDER
        else:
            self._require_ordinary(body.number)
            origin = _origin(request)
            if wait := self._code_requests.take(origin):
                CODE_REFUSED.inc()
                raise RateLimited("too many codes from this address", retry_after=math.ceil(wait))
            consume(request.scope, http.QUERIES)
        await self.codes.issue(body.number, origin)
        return JSONResponse({"number": body.number}, 202)

    async def register(self, request: Request) -> JSONResponse:
        body = await http.read_body(request, registration.DeviceRegistration)
        opened: dict[str, str] = {}
        if self.key.is_given(request):
            if body.person:
                self._require_ordinary(body.number)
            if body.code and not await self.registrations.is_repetition([body]):
                await self.codes.check(body.number, KEY_HOLDER, body.code)
                await self.codes.use(body.number, KEY_HOLDER, body.code)
        elif not body.code and not body.token:
            self.key.require(request)
        else:
            origin = _origin(request)
            if wait := self._tries.take(origin):
                TRY_REFUSED.inc()
                raise RateLimited("too many tries of codes from this address", retry_after=math.ceil(wait))
            consume(request.scope, http.QUERIES)
            # The token of this registration is sufficient proof for repeating it.
            is_repetition = await self.registrations.is_repetition([body])
            if not is_repetition:
                opened = {body.number: await self._verify(request, body, origin)}
            # A right code refunds the token.
            self._tries.add(origin, -1.0)
            mark_authenticated(request.scope)
            if is_repetition:
                return JSONResponse({"number": body.number, "token": body.token}, 201)
        (token,) = await self.registrations.register([body], opened=opened)
        return JSONResponse({"number": body.number, "token": token}, 201)

    async def register_many(self, request: Request) -> JSONResponse:
        self.key.require(request)
        body = await http.read_body(request, registration.BulkRegistration, limit=MAX_BULK_BODY)
        tokens = await self.registrations.register(body.registrations)
        registered = [
            {"number": device.number, "token": token} for device, token in zip(body.registrations, tokens, strict=True)
        ]
        return JSONResponse({"registrations": registered}, 201)

    async def _verify(self, request: Request, body: registration.DeviceRegistration, origin: str) -> str:
        """Check code and PIN of a registration without the key; return the hash of the lock that the PIN opened.

        The PIN is checked only after the right code, so a wrong code does not reveal whether there is a lock.
        """
        if http.bearer(request) or not body.code:
            self.key.require(request)
        self._require_ordinary(body.number)
        await self.codes.check(body.number, origin, body.code)
        opened = await self.registrations.locks.open(body.number, body.pin, origin)
        await self.codes.use(body.number, origin, body.code)
        return opened

    def _require_ordinary(self, number: str) -> None:
        """Raise `KeyRequired` for a number of the business."""
        if number in self.businesses:
            raise KeyRequired(
                f"+{number} is a business's number, which its Coreapp registers with the registration key"
            )


def _origin(request: Request) -> str:
    """Return the key of the client's address."""
    return key_of(http.client_host(request))


def _buckets(clock: Clock, burst: int, seconds: int) -> TokenBuckets[str]:
    return TokenBuckets(clock, rate=1 / seconds, burst=burst, remembered=REMEMBERED)
