"""Who may come in, and how often."""

from __future__ import annotations

import hmac

from fastapi import Request
from prometheus_client import Counter

from webapp import headers, ratelimit
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


class Authenticator:
    """Checks the `Authorization` header."""

    def __init__(self, tokens: Tokens, api_key: ApiKey) -> None:
        self._tokens = tokens
        self._api_key = api_key.encode()

    async def caller(self, request: Request) -> Caller:
        """Whom the request's token speaks for. Raises `Unauthenticated`."""
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

    @property
    def is_keyed(self) -> bool:
        """Whether there is an API key."""
        return bool(self._api_key)

    async def monitor_if_keyed(self, request: Request) -> None:
        """As `monitor` where there is an API key; everybody where there is none. Raises `Unauthenticated`."""
        if self._api_key:
            await self.monitor(request)


def authorization(request: Request) -> bytes:
    """The value of the header, empty without one."""
    return headers.find(request.scope, b"authorization") or b""
