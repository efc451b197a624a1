"""Authentication and rate limits: dependencies of routes, and the objects they use."""

from __future__ import annotations

import dataclasses
import hmac
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.openapi import models
from fastapi.security.base import SecurityBase
from prometheus_client import Counter

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU
from tidings.aio.token_buckets import TokenBuckets
from tidings.http.limited_protocol import consume, mark_authenticated
from tidings.net.unauthenticated import key_of
from tidings.secrets.api_key import ApiKey
from webapp.auth.numbers import Numbers
from webapp.auth.tokens import Caller, Tokens
from webapp.http import dependencies, headers
from webapp.http.errors import AdministratorRequired, RateLimitExceeded, Unauthenticated
from webapp.rate_limits import buckets
from webapp.rate_limits.shared_limits import SharedLimit

# Wrong API keys per address: rate per second, and burst. Comparing keys is cheap, so this limits guessing only.
WRONG_KEYS, WRONG_KEYS_BURST = 1.0, 30
_ADDRESSES = 1_000
# Rate-limit tokens that a response costs which takes some milliseconds to render or send.
DOCUMENT = 4.0
# Tokens that a login costs in addition to those of a request. They are refunded if the password is right.
LOGIN = 3.0

LIMITED_KEYS = Counter(
    "tidings_api_keys_limited_total", "API keys refused: wrong, or not compared after too many wrong ones"
)
LIMITED = Counter("tidings_api_rate_limited_total", "Calls refused by a rate limit", ["endpoint"])
LIMITED_BY_NUMBER = Counter(
    "tidings_number_rate_limited_total", "Calls refused by a rate limit, by number", ["endpoint", "number"]
)


class Limit:
    """Rate limit of one endpoint for one number, independent of other endpoints and numbers."""

    def __init__(self, share: SharedLimit, endpoint: str, number: str) -> None:
        """Create the limit of one number.

        endpoint: name in metrics and errors
        """
        self.share = share
        self._endpoint = endpoint
        self._limited = LIMITED.labels(endpoint)
        self._limited_here = LIMITED_BY_NUMBER.labels(endpoint, number)

    async def admit(self) -> None:
        """Count a request. Raises `RateLimitExceeded` when the limit is exceeded.

        Waits for the shared bucket if this Webapp has no tokens left.
        """
        if self.share.is_short():
            await self.share.replenished()
        self.spend()

    def spend(self) -> None:
        """Count a request without waiting for the shared bucket. Raises `RateLimitExceeded`."""
        wait = self.share.take()
        if wait:
            self._limited.inc()
            self._limited_here.inc()
            raise RateLimitExceeded(f"over the rate limit of {self._endpoint}", retry_after=buckets.retry_after(wait))


@dataclasses.dataclass(frozen=True, slots=True)
class RateLimits:
    """Rate limits of one number, for the endpoints that have one."""

    messages: Limit
    marks: Limit
    contacts: Limit


class NumberLimits:
    """Rate limits of each number, made when the number's first request arrives; at most one per number."""

    def __init__(self, make: Callable[[str], RateLimits]) -> None:
        self._make = make
        self._limits: dict[str, RateLimits] = {}

    def of(self, account: str) -> RateLimits:
        """Return the limits of an authenticated caller's number."""
        found = self._limits.get(account)
        if found is None:
            found = self._limits[account] = self._make(account)
        return found


class Authenticator:
    """Check of the `Authorization` header."""

    def __init__(self, tokens: Tokens, api_key: ApiKey, clock: Clock, *, numbers: Numbers, is_local: bool) -> None:
        """Create the check.

        is_local: whether only clients on this machine can reach the API
        """
        self._is_local = is_local
        self._tokens = tokens
        self._numbers = numbers
        self._api_key = api_key.encode()
        # Buckets of wrong API keys per address, and addresses that have sent the right key.
        self._wrong_keys: TokenBuckets[str] = TokenBuckets(
            clock, rate=WRONG_KEYS, burst=WRONG_KEYS_BURST, remembered=_ADDRESSES
        )
        self._monitors: LRU[str, bool] = LRU(_ADDRESSES)

    async def caller(self, request: Request) -> Caller:
        """Return the caller that the request's token belongs to.

        Raises `Unauthenticated`, and `NumberPaused` when the caller's number is paused.
        """
        return await self.identify(request, _bearer(request))

    async def identify(self, request: Request, token: bytes) -> Caller:
        """Return the caller that a token of a request belongs to. Raises the errors of `caller`."""
        caller = await self._of_token(request, token)
        await self._numbers.admit(caller.account, request.scope)
        return caller

    async def _of_token(self, request: Request, token: bytes) -> Caller:
        """Return the caller of any number that a token belongs to. Raises `Unauthenticated`."""
        caller = await self._tokens.identify(token)
        mark_authenticated(request.scope)
        return caller

    async def key_holder(self, request: Request, key: bytes) -> Caller:
        """Return the caller that a token sent as a key belongs to. Wrong ones count as wrong API keys.

        Raises the errors of `caller`, and `RateLimitExceeded` after too many wrong keys.
        """
        try:
            return await self.identify(request, key)
        except Unauthenticated:
            # Counted only now, so that a right key is served whatever other clients behind its address send. A key with
            # a wrong signature costs no query.
            address = key_of(address_of(request))
            if wait := self._wrong_keys.wait(address):
                LIMITED_KEYS.inc()
                after = buckets.retry_after(wait)
                raise RateLimitExceeded("too many wrong API keys from this address", retry_after=after) from None
            self._wrong_keys.add(address)
            raise

    def recognises(self, header: bytes) -> bool:
        """Return whether this header contains a token that was valid when it was last used here."""
        return header[:7].lower() == b"bearer " and self._tokens.recognises(header[7:].strip())

    async def administrator(self, request: Request) -> Caller:
        """Return the caller if it is an administrator. Raises `Unauthenticated` and `AdministratorRequired`."""
        caller = await self.caller(request)
        if not caller.is_admin:
            raise AdministratorRequired("the token of an administrator is required")
        return caller

    async def monitor(self, request: Request) -> str:
        """Require the API key or a token. Returns the number of the token's user, which may be paused, or an empty
        string for the key, which is for all numbers.

        Raises `Unauthenticated`, and `RateLimitExceeded` after too many wrong keys.
        """
        header = authorization(request)
        if header[:7].lower() == b"apikey ":
            self._check_key(header[7:].strip(), key_of(address_of(request)))
            mark_authenticated(request.scope)
            return ""
        caller = await self._of_token(request, _bearer(request))
        await self._numbers.admit_monitor(caller.account, request.scope)
        return caller.account

    def _check_key(self, key: bytes, address: str) -> None:
        wait = self._wrong_keys.wait(address)
        # Clients behind the same address as a monitor cannot lock it out.
        if wait and address not in self._monitors:
            LIMITED_KEYS.inc()
            raise RateLimitExceeded("too many wrong API keys from this address", retry_after=buckets.retry_after(wait))
        if self._api_key and hmac.compare_digest(key, self._api_key):
            self._monitors.put(address, True)
            return
        if wait:
            LIMITED_KEYS.inc()
            raise RateLimitExceeded("too many wrong API keys from this address", retry_after=buckets.retry_after(wait))
        self._wrong_keys.add(address)
        raise Unauthenticated("wrong API key")

    async def monitor_if_keyed(self, request: Request) -> None:
        """Require the API key or a token if a key is set or other machines reach the API.

        Raises the errors of `monitor`.
        """
        if self._api_key or not self._is_local:
            await self.monitor(request)
        else:
            consume(request.scope, DOCUMENT)

    async def caller_unless_local(self, request: Request) -> None:
        """Require a token if other machines reach the API. Raises `Unauthenticated`."""
        if self._is_local:
            consume(request.scope, DOCUMENT)
        else:
            await self.caller(request)


def _bearer(request: Request) -> bytes:
    """Return the token in the `Authorization` header. Raises `Unauthenticated`."""
    header = authorization(request)
    if header[:7].lower() != b"bearer ":
        raise Unauthenticated("a token is required: Authorization: Bearer …")
    return header[7:].strip()


def address_of(request: Request) -> str:
    """Return the client's address; empty when it is unknown."""
    return request.client.host if request.client else ""


def authorization(request: Request) -> bytes:
    """Return the value of the `Authorization` header; empty without one."""
    return headers.find(request.scope, b"authorization") or b""


class Scheme(SecurityBase):
    """Authentication method for the OpenAPI document. `Authenticator` performs the check."""

    def __init__(self, name: str, model: models.SecurityBase) -> None:
        self.scheme_name = name
        self.model = model

    async def __call__(self) -> None: ...


BASIC = Security(Scheme("basic", models.HTTPBase(scheme="basic")))
BEARER = Security(Scheme("bearer", models.HTTPBearer(bearerFormat="JWT")))
_KEY_HEADER = models.APIKey.model_validate(
    {"in": "header", "name": "Authorization", "description": "`Apikey` and the key"}
)
API_KEY = Security(Scheme("apikey", _KEY_HEADER))


async def caller(request: Request, _: Annotated[None, BEARER]) -> Caller:
    return await dependencies.find(request, Authenticator).caller(request)


async def administrator(request: Request, _: Annotated[None, BEARER]) -> Caller:
    return await dependencies.find(request, Authenticator).administrator(request)


async def monitor(request: Request, _: Annotated[None, BEARER], __: Annotated[None, API_KEY]) -> str:
    return await dependencies.find(request, Authenticator).monitor(request)


async def monitor_if_keyed(request: Request, _: Annotated[None, BEARER], __: Annotated[None, API_KEY]) -> None:
    await dependencies.find(request, Authenticator).monitor_if_keyed(request)


async def caller_unless_local(request: Request, _: Annotated[None, BEARER]) -> None:
    await dependencies.find(request, Authenticator).caller_unless_local(request)


# Place these before the body in a route's signature, so that unauthorised clients do not learn about errors in it.
AnyCaller = Annotated[Caller, Depends(caller)]
Administrator = Annotated[Caller, Depends(administrator)]
# Number of a token's user; empty for the API key.
Monitored = Annotated[str, Depends(monitor)]
