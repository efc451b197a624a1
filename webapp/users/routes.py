"""`/v1/users`: logging in and out, and the users themselves."""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime

from fastapi import APIRouter, Request, Response

from webapp import answers, bodies, openapi
from webapp.authenticator import Authenticator, authorization
from webapp.errors import Unauthenticated
from webapp.openapi import MetaAnswer
from webapp.users import schemas
from webapp.users.service import Users

# Longer ones are wrong; what is compared and hashed stays small.
_MAX_CREDENTIALS = 1_024


def routes(users: Users, authenticator: Authenticator, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["users"])

    @router.post(
        "/v1/users/login",
        summary="Log in",
        response_model=schemas.LoginAnswer,
        openapi_extra=openapi.operation(openapi.BASIC, schemas.Login),
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
        await users.log_out(await authenticator.caller(request))
        return answers.answer({})

    @router.post(
        "/v1/users",
        summary="Make an ordinary user",
        status_code=201,
        response_model=schemas.UserNameAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.NewUser),
    )
    async def create_user(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        body = await bodies.read(request, schemas.NewUser, limit=max_body)
        await users.create(caller, body.username, body.password)
        return answers.answer({"users": [{"username": body.username}]}, status=201)

    @router.get(
        "/v1/users",
        summary="All users",
        response_model=schemas.UsersAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def list_users(request: Request) -> Response:
        found = await users.list(await authenticator.caller(request))
        return answers.answer({"users": [schemas.entry(user) for user in found]})

    @router.get(
        "/v1/users/{username}",
        summary="One user",
        response_model=schemas.UsersAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_user(request: Request, username: str) -> Response:
        user = await users.get(await authenticator.caller(request), username)
        return answers.answer({"users": [schemas.entry(user)]})

    @router.put(
        "/v1/users/{username}",
        summary="Change a password",
        response_model=schemas.UserNameAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.NewPassword),
    )
    async def change_password(request: Request, username: str) -> Response:
        caller = await authenticator.caller(request)
        body = await bodies.read(request, schemas.NewPassword, limit=max_body)
        await users.set_password(caller, username, body.password)
        return answers.answer({"users": [{"username": username}]})

    @router.delete(
        "/v1/users/{username}",
        summary="Delete a user and end its tokens",
        response_model=schemas.UserNameAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def delete_user(request: Request, username: str) -> Response:
        await users.delete(await authenticator.administrator(request), username)
        return answers.answer({"users": [{"username": username}]})

    return router


def _basic(header: bytes) -> tuple[str, str]:
    scheme, _, encoded = header.partition(b" ")
    if scheme.lower() == b"basic" and len(encoded) <= _MAX_CREDENTIALS:
        with contextlib.suppress(binascii.Error):
            username, colon, password = _text(base64.b64decode(encoded.strip(), validate=True)).partition(":")
            if colon and username:
                return username, password
    raise Unauthenticated("login takes HTTP Basic authentication, user name and password", scheme="Basic")


def _text(raw: bytes) -> str:
    # Clients differ in how they encode what is not ASCII.
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
