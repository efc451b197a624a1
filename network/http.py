"""Request bodies, authentication and error responses of the network's HTTP endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from network import errors
from network.delay import Delay
from network.directory.logins import DeviceLogins
from tidings.aio.batcher import BatcherFull
from tidings.http.limited_protocol import consume, mark_authenticated
from tidings.storage import outages
from tidings.storage.database import DatabaseError
from tidings.wire.decoding import UNREADABLE

Body = TypeVar("Body")

log = logging.getLogger(__name__)

MAX_BODY = 256 * 1024  # Maximum JSON body, bytes.
# Longest duration of a request in seconds, for example while the database is unreachable; then the response is 503.
TIMEOUT = 30.0
# Extra rate-limit tokens of an unauthenticated request that causes database queries: a login, a request for a code or a
# try of one. A login or a registration refunds them.
QUERIES = 3.0
# Requests under this path transfer files and have separate timeouts.
TRANSFERS = "/v1/blobs/"


async def read_bytes(request: Request, *, limit: int) -> bytes:
    """Return the raw body. Raises `TooLarge` when it has more than `limit` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise errors.TooLarge(f"a body may have at most {limit} bytes")
    return bytes(body)


async def read_body(request: Request, kind: type[Body], *, limit: int = MAX_BODY) -> Body:
    """Return the JSON body decoded into `kind` and validated. Raises `TooLarge` and `BadRequest`.

    limit: bytes of the body.
    """
    body = await read_bytes(request, limit=limit)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise errors.BadRequest(str(error)) from error
    except UNREADABLE as error:
        raise errors.BadRequest(str(error), reason="malformed_json") from error


def bearer(request: Request) -> str:
    """Return the bearer token of the `Authorization` header, empty when there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def require_key(request: Request, key: str, *, certified: bool) -> None:
    """Require the registration key as the bearer token. Raises `Unauthorized`.

    certified: the client must also have presented a certificate, which the listener has verified.
    """
    if certified and not request.scope["extensions"]["tls"]["client_cert_name"]:
        # Checked before the key, so that a client without a certificate cannot guess keys.
        raise errors.Unauthorized("the registration key is accepted only from clients with a certificate")
    if not hmac.compare_digest(bearer(request).encode(), key.encode()):
        raise errors.Unauthorized("the registration key is wrong")
    mark_authenticated(request.scope)


async def require_device(request: Request, logins: DeviceLogins, number: str) -> None:
    """Require the token of the device of this number. Raises `Unauthorized`."""
    token = bearer(request)
    consume(request.scope, QUERIES)
    if not token or not await logins.is_device(number, token, client_host(request)):
        raise errors.Unauthorized("unknown number or wrong token")
    mark_authenticated(request.scope)


def client_host(request: Request) -> str:
    """Return the client's address. The listener has replaced a trusted proxy by the client that it names."""
    return request.client.host if request.client is not None else ""


@contextlib.asynccontextmanager
async def in_time(seconds: float = TIMEOUT) -> AsyncIterator[None]:
    """Raise `Unavailable` when the block takes longer than `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise errors.Unavailable("the request took too long") from error


def error_response(error: errors.RequestError) -> JSONResponse:
    """Return the HTTP response to a request that failed with this error."""
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else None
    return JSONResponse({"error": {"reason": error.reason, "detail": error.detail}}, error.status, headers)


_OUR_FAULT = "an internal error occurred; see the network's log"
_BY_STATUS: dict[int, type[errors.RequestError]] = {404: errors.NotFound, 405: errors.WrongMethod}


def map_errors(app: FastAPI) -> None:
    """Send every error as {"error": {"reason", "detail"}}."""

    async def ours(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, errors.RequestError)
        return error_response(error)

    async def framework(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        kind = _BY_STATUS.get(error.status_code, errors.BadRequest)
        detail = {404: f"there is no {request.url.path}", 405: f"{request.method} is not for {request.url.path}"}
        refusal = error_response(kind(detail.get(error.status_code, str(error.detail))))
        refusal.headers.update(error.headers or {})
        return refusal

    async def busy(request: Request, error: Exception) -> JSONResponse:
        if not isinstance(error, BatcherFull) and not outages.is_outage(error):
            log.error("request.failed", extra={"path": request.url.path}, exc_info=error)
            return error_response(errors.RequestError(_OUR_FAULT))
        log.warning("request.unavailable", extra={"path": request.url.path, "error": repr(error)[:200]})
        return error_response(errors.Unavailable("the database does not respond"))

    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        return error_response(errors.RequestError(_OUR_FAULT))

    app.add_exception_handler(errors.RequestError, ours)
    app.add_exception_handler(HTTPException, framework)
    app.add_exception_handler(DatabaseError, busy)
    app.add_exception_handler(BatcherFull, busy)
    app.add_exception_handler(Exception, unexpected)


class SimulatedLatency:
    """ASGI middleware that simulates the latency of a distant network and limits the duration of each call."""

    def __init__(self, app: ASGIApp, delay: Delay) -> None:
        self._app = app
        self._delay = delay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        await self._delay.sleep()
        try:
            async with asyncio.timeout(None if scope["path"].startswith(TRANSFERS) else TIMEOUT):
                await self._app(scope, receive, send)
        except TimeoutError:
            await error_response(errors.Unavailable("the request took too long"))(scope, receive, send)
