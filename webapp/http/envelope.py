"""Outermost layer around every request: normalised path, request id, common headers, and a response in every case."""

from __future__ import annotations

import logging
import os
import re
import time
from typing import Protocol

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidings.http.exchange import WITHHELD
from tidings.http.limited_protocol import ADMITTED
from tidings.http.request_parser import split_target
from tidings.observability.tracing import TRACES, Kind, Span
from tidings.storage import outages
from tidings.storage.database import DatabaseError
from tidings.wire.codes import INVALID_REQUEST
from webapp.http import headers
from webapp.http.errors import (
    METHODS,
    APIError,
    DatabaseFailed,
    DatabaseUnavailable,
    InvalidRequest,
    MethodNotAllowed,
    Overloaded,
    ResponseWithheld,
    Unexpected,
    UnknownPath,
)
from webapp.http.responses import error_response

log = logging.getLogger(__name__)

MESSAGES = "/v1/messages"  # the hot route
CALLBACKS = "/cloud/callbacks/"  # followed by the secret of a number's callback

_SANE_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,64}")
_SLASHES = re.compile(rb"//+")
MAX_TRACEPARENT = 64
# Paths that monitoring polls every few seconds. They are not traced, and are served before other waiting requests.
MONITORED = frozenset(("/", "/metrics", "/v1/metrics", "/v1/health", "/health/live", "/health/ready"))
_NO_CACHE = (b"cache-control", b"no-cache, private")


class Dialect(Protocol):
    """API with its own format of errors, headers and paths."""

    def claims(self, path: str) -> bool:
        """Return whether a path belongs to this API."""
        ...

    def respond_with_error(self, error: APIError, scope: Scope) -> Response:
        """Return the response to an error, with all headers."""
        ...


class EnvelopeMiddleware:
    """Outermost middleware.

    At most `max_requests` requests are in progress. A further one is refused with 503.
    """

    def __init__(self, app: ASGIApp, max_requests: int, dialect: Dialect | None = None) -> None:
        """dialect: API on other paths than those of v1; `None` for none"""
        self._app = app
        self._max_requests = max_requests
        self._dialect = dialect
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if len(path) > 1 and (path[-1] == "/" or "//" in path):
            # Those of an id are encoded, and stay.
            raw = _SLASHES.sub(b"/", scope["raw_path"]).rstrip(b"/") or b"/"
            scope["path"], _, _ = split_target(raw)
        request_id = _request_id(scope)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        if scope["method"] == "HEAD":
            # The route of GET serves HEAD as well. The flag lets it skip work for the body.
            state["without_body"] = True
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        named = (b"x-request-id", request_id.encode())
        dialect = self._dialect if self._dialect is not None and self._dialect.claims(scope["path"]) else None
        added = (_NO_CACHE, named) if dialect is None else (named,)
        started, status = False, 500
        span = _begin_span(scope, request_id) if TRACES.tracer is not None else None
        began = time.perf_counter() if log.isEnabledFor(logging.DEBUG) else 0.0

        async def send_with_headers(message: Message) -> None:
            nonlocal started, status
            if message["type"] == "http.response.start":
                started, status = True, message["status"]
                message["headers"].extend(added if "has_caching" not in state else (named,))
            await send(message)

        self._running += 1
        try:
            if self._running > self._max_requests:
                raise Overloaded(f"{self._max_requests} requests are in progress")
            await self._app(scope, receive, send_with_headers)
        except ResponseWithheld:
            await send({"type": WITHHELD})
        except Exception as error:
            if not isinstance(error, APIError):
                log.exception(
                    "http.failed", extra={"request_id": request_id, "path": _without_secret(scope["path"])[:200]}
                )
            if started:
                raise
            found = as_api_error(error, request_id)
            response = error_response(found) if dialect is None else dialect.respond_with_error(found, scope)
            await response(scope, receive, send_with_headers)
        finally:
            self._running -= 1
            if span is not None:
                _end_span(span, scope, status)
            if began:
                _log_response(scope, request_id, status, time.perf_counter() - began)


def _log_response(scope: Scope, request_id: str, status: int, seconds: float) -> None:
    """Log the request with its route rather than its path, which may contain phone numbers."""
    route = getattr(scope.get("route"), "path", "")
    fields = {"request_id": request_id, "method": scope["method"], "route": route, "status": status}
    log.debug("http.responded", extra={**fields, "took_ms": round(seconds * 1000, 1)})


def _begin_span(scope: Scope, request_id: str) -> Span | None:
    """Start a span in the caller's trace or in a new one. Calls made for this request continue it.

    The trace of an unauthenticated client is ignored, because it must not decide what is sampled.
    """
    tracer = TRACES.tracer
    if scope["path"] in MONITORED:
        return None
    admitted = scope.get(ADMITTED)
    is_known = admitted is None or admitted.is_recognised
    given = headers.find(scope, b"traceparent") or b"" if is_known else b""
    attributes = {"http.request.method": scope["method"], "tidings.request_id": request_id}
    parent = given.decode("ascii", "replace") if len(given) <= MAX_TRACEPARENT else ""
    span = tracer.start(scope["method"], parent, kind=Kind.SERVER, attributes=attributes) if tracer else None
    if span is not None:
        scope["state"]["traceparent"] = span.traceparent
    return span


def _end_span(span: Span, scope: Scope, status: int) -> None:
    route = getattr(scope.get("route"), "path", "")
    attributes = {"http.response.status_code": status, **({"http.route": route} if route else {})}
    error = f"HTTP {status}" if status >= 500 else ""
    span.end(name=f"{scope['method']} {route}".strip(), error=error, attributes=attributes)


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head


def as_api_error(error: Exception, request_id: str) -> APIError:
    """Return the API error for an error of any kind."""
    if isinstance(error, APIError):
        return error
    return _of_database(error) or Unexpected(request_id)


def _of_database(error: Exception) -> APIError | None:
    """Return the API error for an error of the database; `None` for another error.

    A request writes in one transaction, so an outage before its commit leaves nothing done. Code that runs after
    a commit raises an `APIError` itself.
    """
    if outages.is_safe_to_retry(error):
        return (
            Overloaded("all database connections are in use")
            if isinstance(error, outages.PoolExhausted)
            else DatabaseUnavailable()
        )
    return DatabaseFailed() if isinstance(error, DatabaseError) or outages.is_outage(error) else None


async def respond_with_error(request: Request, error: Exception) -> Response:
    """Handle errors that routes raise."""
    response = error_response(as_api_error(error, request.state.request_id))
    if response.status_code >= 500:
        log.warning("http.failed", extra={"request_id": request.state.request_id, "error": str(error)})
    return response


async def respond_to_http_exception(request: Request, error: Exception) -> Response:
    """Handle errors of the framework: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    if error.status_code == 404:
        return error_response(UnknownPath(path))
    if error.status_code == 405:
        return error_response(MethodNotAllowed(request.method, path, ", ".join(_allowed(request))))
    return error_response(InvalidRequest.because(INVALID_REQUEST, str(error.detail)))


def _allowed(request: Request) -> list[str]:
    # A documented path without parameters takes precedence: `/v1/users/login` does not match `/v1/users/{username}`.
    described = request.app.openapi()["paths"].get(request.scope["path"])
    if described is not None:
        return [method for method in METHODS if _as_described(method).lower() in described]
    # A path has one route per method, and each route knows only its method.
    plain = {key: request.scope[key] for key in ("type", "path", "root_path", "headers")}
    return [
        method
        for method in METHODS
        if any(
            route.matches({**plain, "method": _as_described(method)})[0] is Match.FULL
            for route in request.app.router.routes
        )
    ]


def _as_described(method: str) -> str:
    return "GET" if method == "HEAD" else method


def _request_id(scope: Scope) -> str:
    given = headers.find(scope, b"x-request-id")
    if given is not None and _SANE_ID.fullmatch(given):
        return given.decode()
    return os.urandom(16).hex()


def _without_secret(path: str) -> str:
    """Return a path without the secret that some paths end with."""
    return CALLBACKS if path.startswith(CALLBACKS) else path
