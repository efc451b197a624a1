"""`/v1/account`, `/v1/account/verify`, `/v1/account/shards` and `/v1/settings/account/two-step`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from webapp.api.account import schemas
from webapp.api.account.service import RegistrationService, Shards
from webapp.auth.authenticator import Administrator
from webapp.http import responses
from webapp.http.bodies import json_body
from webapp.http.dependencies import part
from webapp.http.openapi.document import RESPONSES, MetaResponse

TWO_STEP = "/v1/settings/account/two-step"


router = APIRouter(tags=["account"], responses=RESPONSES)
Service = Annotated[RegistrationService, part(RegistrationService)]


@router.post(
    "/v1/account",
    summary="Request a registration code",
    status_code=202,
    response_model=schemas.CodeResponse,
    responses={201: {"model": schemas.CodeResponse, "description": "The number is already registered"}},
)
async def request_code(
    caller: Administrator, body: Annotated[schemas.CodeRequest, json_body(schemas.CodeRequest)], account: Service
) -> Response:
    done = await account.request_code(caller, body)
    return responses.success({"account": [{"vname": done.display_name}]}, status=201 if done.registered else 202)


@router.post("/v1/account/verify", summary="Register with the code", status_code=201, response_model=MetaResponse)
async def verify(
    caller: Administrator, body: Annotated[schemas.Verification, json_body(schemas.Verification)], account: Service
) -> Response:
    await account.verify(caller, body.code)
    return responses.success({}, status=201)


@router.get("/v1/account/shards", summary="The number of shards", response_model=schemas.ShardsResponse)
async def get_shards(caller: Administrator, account: Service) -> Response:
    return _shards(await account.shards(caller), 200)


@router.post(
    "/v1/account/shards", summary="Set the number of shards", status_code=201, response_model=schemas.ShardsResponse
)
async def set_shards(
    caller: Administrator, change: Annotated[schemas.ShardsChange, json_body(schemas.ShardsChange)], account: Service
) -> Response:
    return _shards(await account.set_shards(caller, change), 201)


@router.post(TWO_STEP, summary="Set the two-step PIN", response_model=MetaResponse)
async def set_pin(
    caller: Administrator, body: Annotated[schemas.TwoStep, json_body(schemas.TwoStep)], account: Service
) -> Response:
    await account.set_pin(caller, body.pin)
    return responses.success({})


@router.delete(TWO_STEP, summary="Remove the two-step PIN", response_model=MetaResponse)
async def remove_pin(caller: Administrator, account: Service) -> Response:
    await account.remove_pin(caller)
    return responses.success({})


def _shards(found: Shards, status: int) -> Response:
    state = {"shards": found.set, "active_shards": found.active}
    moved = {} if found.moved is None else {"moved": found.moved}
    return responses.success({"account": state | moved}, status=status)
