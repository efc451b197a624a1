"""Middleware that admits requests with `D360-API-KEY`. All other requests pass unchanged."""

from __future__ import annotations

import time
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidings.wire.cloud.identity import NumberIdentity
from webapp.api.d360 import paths, responses
from webapp.api.metrics import instrumentation
from webapp.auth.authenticator import Authenticator
from webapp.auth.tokens import Caller
from webapp.http import headers
from webapp.http.errors import APIError, RateLimitExceeded, Unauthenticated

KEY = b"d360-api-key"
_AUTHORIZATION = b"authorization"


class CloudPaths(Protocol):
    """The Cloud API of an installation."""

    def identity_of(self, account: str) -> NumberIdentity:
        """Return the ids of a number."""
        ...

    def respond_with_error(self, error: APIError, scope: Scope) -> Response: ...


class D360Layer:
    """Passes a request with a key on as a request of v1 with that token, and serves the paths that v1 lacks."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, cloud: CloudPaths | None) -> None:
        """cloud: the Cloud API; `None` where only v1 is served"""
        self._cloud = cloud
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = headers.find(scope, KEY) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        key = found.strip()
        request = Request(scope, receive, send)
        call, route = paths.find_call(scope["method"], scope["path"]) or (None, "none")
        started, status = time.perf_counter(), 500
        try:
            result = await self._respond(request, key, call)
            status = result.status_code if isinstance(result, Response) else 0
        finally:
            # Those that are passed on are counted by the layers below.
            if status:
                instrumentation.observe(scope["method"], route, status, max(time.perf_counter() - started, 0.0))
        if isinstance(result, Response):
            await result(scope, receive, send)
            return
        caller = result
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] not in (KEY, _AUTHORIZATION)]
        scope["headers"].append((_AUTHORIZATION, b"Bearer " + key))
        if self._cloud is None:
            if paths.is_health(scope["method"], scope["path"]):
                scope["path"] = paths.V1_HEALTH
            await self._app(scope, receive, send)
        else:
            await self._pass_to_cloud(self._cloud, caller, scope, receive, send)

    async def _respond(self, request: Request, key: bytes, call: paths.Call | None) -> Response | Caller:
        """Return the response to a request that has a wrong key or is one of 360dialog's own calls, or the caller of
        any other one.
        """
        try:
            caller = await self._authenticator.key_holder(request, key)
        except Unauthenticated:
            return responses.failed(401, responses.INVALID_KEY)
        except RateLimitExceeded as error:
            return responses.of_error(error)
        if call is None:
            return caller
        try:
            return await call(request, caller)
        except APIError as error:
            return responses.of_error(error)

    async def _pass_to_cloud(
        self, cloud: CloudPaths, caller: Caller, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Pass a request on, with the number in its path if it is one of the Cloud API without it."""
        path = paths.with_node(scope["method"], scope["path"], cloud.identity_of(caller.account))
        if path == scope["path"]:
            await self._app(scope, receive, send)
            return
        if paths.is_health(scope["method"], scope["path"]):
            scope["query_string"] = paths.HEALTH_FIELDS
        scope["path"] = path
        # The façade sets all headers.
        scope["state"]["has_caching"] = True
        try:
            await self._app(scope, receive, send)
        except APIError as error:
            await cloud.respond_with_error(error, scope)(scope, receive, send)
