"""Authentication and rate limits: dependencies of routes, and the objects behind them."""

from __future__ import annotations

import dataclasses
import hmac
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.openapi import models
from fastapi.security.base import SecurityBase
from prometheus_client import Counter

from tidings.runtime.api_key import ApiKey
from tidings.runtime.clock import Clock
from tidings.runtime.http1 import VISITOR
from tidings.runtime.lru import LRU
from tidings.runtime.strangers import key_of
from tidings.runtime.token_buckets import TokenBuckets
from webapp import dependencies, headers
from webapp.errors import AdministratorRequired, RateLimitExceeded, Unauthenticated
from webapp.rate_limits import buckets
from webapp.rate_limits.shares import Share
from webapp.tokens import Caller, Tokens

# Wrong API keys of one address, a second and at once. To compare one costs nothing, so this is for guessing alone.
WRONG_KEYS, WRONG_KEYS_BURST = 1.0, 30
_ADDRESSES = 1_000
# Tokens of the door for what takes some milliseconds to render or to send.
DOCUMENT = 4.0
# What a login costs beyond another request; whoever has the password gets it back.
LOGIN = 3.0

LIMITED_KEYS = Counter(
    "tidings_api_keys_limited_total", "API keys that were not compared, or wrong, after too many wrong ones"
)
LIMITED = Counter("tidings_api_rate_limited_total", "Calls refused by a rate limit", ["endpoint"])


class Limit:
    """The rate limit of one endpoint, which no other endpoint touches."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self._limited = LIMITED.labels(share.name)

    async def admit(self) -> None:
        """Count one call. Raises `RateLimitExceeded` when there were too many."""
        if self.share.is_short():
            await self.share.replenished()
        self.spend()

    def spend(self) -> None:
        """The same without asking other Webapps for what they may have left. Raises `RateLimitExceeded`."""
        wait = self.share.take()
        if wait:
            self._limited.inc()
            raise RateLimitExceeded(f"over the rate limit of {self.share.name}", retry_after=buckets.retry_after(wait))


@dataclasses.dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits of the endpoints that have one."""

    messages: Limit
    marks: Limit
    contacts: Limit


class Authenticator:
    """Checks the `Authorization` header."""

    def __init__(self, tokens: Tokens, api_key: ApiKey, clock: Clock, *, is_local: bool) -> None:
        """is_local: only this machine reaches the API."""
        self._is_local = is_local
        self._tokens = tokens
        self._api_key = api_key.encode()
        # Wrong API keys of each address, and the addresses that had the right one.
        self._wrong_keys: TokenBuckets[str] = TokenBuckets(
            clock, rate=WRONG_KEYS, burst=WRONG_KEYS_BURST, remembered=_ADDRESSES
        )
        self._monitors: LRU[str, bool] = LRU(_ADDRESSES)

    async def caller(self, request: Request) -> Caller:
        """The caller that the request's token belongs to. Raises `Unauthenticated`."""
        header = authorization(request)
        if header[:7].lower() != b"bearer ":
            raise Unauthenticated("this takes a token: Authorization: Bearer …")
        caller = await self._tokens.identify(header[7:].strip())
        prove(request)
        return caller

    def recognises(self, header: bytes) -> bool:
        """Is this what a caller sends whose token is in memory?"""
        return header[:7].lower() == b"bearer " and self._tokens.find(header[7:].strip()) is not None

    async def administrator(self, request: Request) -> Caller:
        """`caller`, and an administrator. Raises `Unauthenticated` and `AdministratorRequired`."""
        caller = await self.caller(request)
        if not caller.is_admin:
            raise AdministratorRequired("this takes a token of an administrator")
        return caller

    async def monitor(self, request: Request) -> None:
        """The API key or a token. Raises `Unauthenticated`, `RateLimitExceeded` for too many wrong keys."""
        header = authorization(request)
        if header[:7].lower() == b"apikey ":
            self._check_key(header[7:].strip(), key_of(address_of(request)))
            prove(request)
            return
        await self.caller(request)

    def _check_key(self, key: bytes, address: str) -> None:
        wait = self._wrong_keys.wait(address)
        # Whoever is behind the same address as a monitor cannot keep it out.
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
        """As `monitor` where there is an API key or others reach the API; else everybody. Raises `Unauthenticated`."""
        if self._api_key or not self._is_local:
            await self.monitor(request)
        else:
            charge(request, DOCUMENT)

    async def neighbour(self, request: Request) -> None:
        """Everybody who is on this machine; others need a token. Raises `Unauthenticated`."""
        if self._is_local:
            charge(request, DOCUMENT)
        else:
            await self.caller(request)


def address_of(request: Request) -> str:
    """Where the request comes from, as far as is known."""
    return request.client.host if request.client else ""


def prove(request: Request) -> None:
    """Whoever sent this has logged in, so the connection is no stranger's."""
    visitor = request.scope.get(VISITOR)
    if visitor is not None:
        visitor.proved()


def charge(request: Request, tokens: float) -> None:
    """This costs more than most requests of those do who have not logged in."""
    visitor = request.scope.get(VISITOR)
    if visitor is not None:
        visitor.charge(tokens)


def authorization(request: Request) -> bytes:
    """The value of the header, empty without one."""
    return headers.find(request.scope, b"authorization") or b""


class Scheme(SecurityBase):
    """A way to authenticate, as the OpenAPI document names it; `Authenticator` checks it."""

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


async def monitor(request: Request, _: Annotated[None, BEARER], __: Annotated[None, API_KEY]) -> None:
    await dependencies.find(request, Authenticator).monitor(request)


async def monitor_if_keyed(request: Request, _: Annotated[None, BEARER], __: Annotated[None, API_KEY]) -> None:
    await dependencies.find(request, Authenticator).monitor_if_keyed(request)


async def neighbour(request: Request, _: Annotated[None, BEARER]) -> None:
    await dependencies.find(request, Authenticator).neighbour(request)


# In the signature of a route, before its body: whoever may not call learns nothing of what would be wrong with it.
AnyCaller = Annotated[Caller, Depends(caller)]
Administrator = Annotated[Caller, Depends(administrator)]
