"""`/v1/users`: login, logout and users."""

from __future__ import annotations

import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from tidings.http.limited_protocol import consume, mark_authenticated
from tidings.storage.business.users import User
from webapp.api.users import basic, schemas
from webapp.api.users.service import Users
from webapp.auth.authenticator import (
    BASIC,
    LOGIN,
    Administrator,
    AnyCaller,
    address_of,
    authorization,
)
from webapp.http import responses
from webapp.http.bodies import json_body
from webapp.http.dependencies import part
from webapp.http.errors import Unauthenticated
from webapp.http.openapi.document import RESPONSES, MetaResponse

# Maximum bytes in the body of a login.
_MAX_BODY = 4 * 1_024


async def basic_credentials(request: Request, __: Annotated[None, BASIC]) -> tuple[str, str]:
    """Return the user name and password of the request. Raises `Unauthenticated`."""
    found = basic.parse(authorization(request))
    if found is None:
        raise Unauthenticated("login requires HTTP Basic authentication with user name and password", scheme="Basic")
    return found


Credentials = Annotated[tuple[str, str], Depends(basic_credentials)]
router = APIRouter(tags=["users"], responses=RESPONSES)
Service = Annotated[Users, part(Users)]


async def checked_user(credentials: Credentials, users: Service, request: Request) -> User:
    """Return the user with these credentials, before the body is read. Raises the errors of `Users.check`."""
    consume(request.scope, LOGIN)
    user = await users.check(*credentials, address_of(request), request.scope)
    mark_authenticated(request.scope)
    return user


CheckedUser = Annotated[User, Depends(checked_user)]


@router.post("/v1/users/login", summary="Log in", response_model=schemas.LoginResponse)
async def login(
    user: CheckedUser,
    credentials: Credentials,
    body: Annotated[schemas.Login, json_body(schemas.Login, _MAX_BODY)],
    users: Service,
    request: Request,
) -> Response:
    _, password = credentials
    issued = await users.log_in(user, password, body.new_password, address_of(request))
    expires = datetime.datetime.fromtimestamp(issued.expires_at, datetime.UTC)
    token = {"token": issued.token, "expires_after": expires.isoformat(sep=" ")}
    return responses.success({"users": [token]}, meta=responses.LOGIN_META)


@router.post("/v1/users/logout", summary="End this token", response_model=MetaResponse)
async def logout(caller: AnyCaller, users: Service) -> Response:
    await users.log_out(caller)
    return responses.success({})


@router.delete(
    "/v1/users/{username}/tokens", summary="End all tokens of a user", response_model=schemas.UserNameResponse
)
async def end_tokens(caller: AnyCaller, users: Service, username: str) -> Response:
    await users.end_tokens(caller, username)
    return responses.success({"users": [{"username": username}]})


@router.post(
    "/v1/users",
    summary="Create a user without administrator rights",
    status_code=201,
    response_model=schemas.UserNameResponse,
)
async def create_user(
    caller: Administrator, body: Annotated[schemas.NewUser, json_body(schemas.NewUser)], users: Service
) -> Response:
    await users.create(caller, body.username, body.password)
    return responses.success({"users": [{"username": body.username}]}, status=201)


@router.get("/v1/users", summary="All users", response_model=schemas.UsersResponse)
async def list_users(caller: AnyCaller, users: Service) -> Response:
    found = await users.list(caller)
    return responses.success({"users": [schemas.entry(user) for user in found]})


@router.get("/v1/users/{username}", summary="One user", response_model=schemas.UsersResponse)
async def get_user(caller: AnyCaller, users: Service, username: str) -> Response:
    user = await users.get(caller, username)
    return responses.success({"users": [schemas.entry(user)]})


@router.put(
    "/v1/users/{username}",
    summary="Change a password and end the user's tokens",
    response_model=schemas.UserNameResponse,
)
async def change_password(
    caller: AnyCaller,
    body: Annotated[schemas.NewPassword, json_body(schemas.NewPassword)],
    users: Service,
    request: Request,
    username: str,
) -> Response:
    address = address_of(request)
    await users.set_password(caller, username, body.password, old_password=body.old_password, address=address)
    return responses.success({"users": [{"username": username}]})


@router.delete(
    "/v1/users/{username}", summary="Delete a user and end its tokens", response_model=schemas.UserNameResponse
)
async def delete_user(caller: Administrator, users: Service, username: str) -> Response:
    await users.delete(caller, username)
    return responses.success({"users": [{"username": username}]})
