"""Authentication and rate limits: dependencies of routes, and the objects behind them."""

from __future__ import annotations

import dataclasses
import hmac
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.openapi import models
from fastapi.security.base import SecurityBase
from prometheus_client import Counter

from webapp import dependencies, headers, ratelimit
from webapp.errors import AdministratorRequired, RateLimitExceeded, Unauthenticated
from webapp.ratelimit import TokenBucket
from webapp.settings import ApiKey
from webapp.tokens import Caller, Tokens

LIMITED = Counter("tidings_api_rate_limited_total", "Calls refused by a rate limit", ["endpoint"])


class Limit:
    """The rate limit of one endpoint, which no other endpoint touches."""

    def __init__(self, endpoint: str, bucket: TokenBucket) -> None:
        self._endpoint = endpoint
        self._bucket = bucket
        self._limited = LIMITED.labels(endpoint)

    def spend(self) -> None:
        """Count one call. Raises `RateLimitExceeded` when there were too many."""
        wait = self._bucket.take()
        if wait:
            self._limited.inc()
            raise RateLimitExceeded(f"over the rate limit of {self._endpoint}", retry_after=ratelimit.retry_after(wait))


@dataclasses.dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits of the endpoints that have one."""

    messages: Limit
    marks: Limit
    contacts: Limit


class Authenticator:
    """Checks the `Authorization` header."""

    def __init__(self, tokens: Tokens, api_key: ApiKey) -> None:
        self._tokens = tokens
        self._api_key = api_key.encode()

    async def caller(self, request: Request) -> Caller:
        """The caller that the request's token belongs to. Raises `Unauthenticated`."""
        header = authorization(request)
        if header[:7].lower() != b"bearer ":
            raise Unauthenticated("this takes a token: Authorization: Bearer …")
        return await self._tokens.identify(header[7:].strip())

    async def administrator(self, request: Request) -> Caller:
        """`caller`, and an administrator. Raises `Unauthenticated` and `AdministratorRequired`."""
        caller = await self.caller(request)
        if not caller.is_admin:
            raise AdministratorRequired("this takes a token of an administrator")
        return caller

    async def monitor(self, request: Request) -> None:
        """The API key or a token. Raises `Unauthenticated`."""
        header = authorization(request)
        if header[:7].lower() == b"apikey ":
            if not self._api_key or not hmac.compare_digest(header[7:].strip(), self._api_key):
                raise Unauthenticated("wrong API key")
            return
        await self.caller(request)

    async def monitor_if_keyed(self, request: Request) -> None:
        """As `monitor` where there is an API key; everybody where there is none. Raises `Unauthenticated`."""
        if self._api_key:
            await self.monitor(request)


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


# In the signature of a route, before its body: whoever may not call learns nothing of what would be wrong with it.
AnyCaller = Annotated[Caller, Depends(caller)]
Administrator = Annotated[Caller, Depends(administrator)]
