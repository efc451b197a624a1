"""`/v1/account`, `/v1/account/verify`, `/v1/account/shards` and `/v1/settings/account/two-step`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from webapp import answers, bodies, openapi
from webapp.account import schemas
from webapp.account.service import Account, Shards
from webapp.authenticator import Authenticator
from webapp.openapi import MetaAnswer

TWO_STEP = "/v1/settings/account/two-step"


def routes(account: Account, authenticator: Authenticator, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["account"])

    @router.post(
        "/v1/account",
        summary="Have a registration code sent",
        status_code=202,
        response_model=schemas.CodeAnswer,
        responses={201: {"model": schemas.CodeAnswer, "description": "The number is registered already"}},
        openapi_extra=openapi.operation(openapi.BEARER, schemas.CodeRequest),
    )
    async def request_code(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        done = await account.request_code(caller, await bodies.read(request, schemas.CodeRequest, limit=max_body))
        return answers.answer({"account": [{"vname": done.display_name}]}, status=201 if done.registered else 202)

    @router.post(
        "/v1/account/verify",
        summary="Register with the code",
        status_code=201,
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Verification),
    )
    async def verify(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        body = await bodies.read(request, schemas.Verification, limit=max_body)
        await account.verify(caller, body.code)
        return answers.answer({}, status=201)

    @router.get(
        "/v1/account/shards",
        summary="The number of shards",
        response_model=schemas.ShardsAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_shards(request: Request) -> Response:
        return _shards(await account.shards(await authenticator.administrator(request)), 200)

    @router.post(
        "/v1/account/shards",
        summary="Set the number of shards",
        status_code=201,
        response_model=schemas.ShardsAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.ShardsChange),
    )
    async def set_shards(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        change = await bodies.read(request, schemas.ShardsChange, limit=max_body)
        return _shards(await account.set_shards(caller, change), 201)

    @router.post(
        TWO_STEP,
        summary="Set the two-step PIN",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.TwoStep),
    )
    async def set_pin(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        body = await bodies.read(request, schemas.TwoStep, limit=max_body)
        await account.set_pin(caller, body.pin)
        return answers.answer({})

    @router.delete(
        TWO_STEP,
        summary="Take the two-step PIN away",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def remove_pin(request: Request) -> Response:
        await account.remove_pin(await authenticator.administrator(request))
        return answers.answer({})

    return router


def _shards(found: Shards, status: int) -> Response:
    return answers.answer({"account": {"shards": found.set, "active_shards": found.active}}, status=status)
