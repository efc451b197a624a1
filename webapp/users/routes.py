"""`POST /v1/users/login` and `/v1/users/logout`."""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime

from fastapi import APIRouter, Request, Response

from webapp import answers, bodies, openapi
from webapp.errors import LogIn
from webapp.gate import Gate, authorization
from webapp.openapi import MetaAnswer
from webapp.users import schemas
from webapp.users.service import Users

# Longer ones are wrong; what is compared and hashed stays small.
_MAX_CREDENTIALS = 1_024


def routes(users: Users, gate: Gate, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["users"])

    @router.post(
        "/v1/users/login",
        summary="Log in",
        response_model=schemas.LoginAnswer,
        openapi_extra=openapi.operation(openapi.BASIC, schemas.Login, required=False),
    )
    async def login(request: Request) -> Response:
        username, password = _basic(authorization(request))
        body = await bodies.read(request, schemas.Login, limit=max_body)
        address = request.client.host if request.client else ""
        issued = await users.log_in(username, password, body.new_password, address)
        expires = datetime.datetime.fromtimestamp(issued.expires_at, datetime.UTC)
        user = {"token": issued.token, "expires_after": expires.isoformat(sep=" ")}
        return answers.answer({"users": [user]}, meta=answers.LOGIN_META)

    @router.post(
        "/v1/users/logout",
        summary="End this token",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def logout(request: Request) -> Response:
        await users.log_out(await gate.caller(request))
        return answers.answer({})

    return router


def _basic(header: bytes) -> tuple[str, str]:
    scheme, _, encoded = header.partition(b" ")
    if scheme.lower() == b"basic" and len(encoded) <= _MAX_CREDENTIALS:
        with contextlib.suppress(binascii.Error):
            username, colon, password = _text(base64.b64decode(encoded.strip(), validate=True)).partition(":")
            if colon and username:
                return username, password
    raise LogIn("login takes HTTP Basic authentication, user name and password", scheme="Basic")


def _text(raw: bytes) -> str:
    # Clients differ in how they encode what is not ASCII.
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
