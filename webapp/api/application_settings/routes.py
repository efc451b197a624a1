"""`GET`, `PATCH` and `DELETE /v1/settings/application`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Response

from webapp.api.application_settings import schemas
from webapp.api.application_settings.service import AccountSettings
from webapp.auth.authenticator import Administrator
from webapp.http import responses
from webapp.http.bodies import json_body
from webapp.http.dependencies import part
from webapp.http.openapi.document import RESPONSES, MetaResponse

PATH = "/v1/settings/application"


router = APIRouter(tags=["settings"], responses=RESPONSES)
Service = Annotated[AccountSettings, part(AccountSettings)]


@router.get(PATH, summary="The application settings", response_model=schemas.SettingsResponse)
async def get_settings(caller: Administrator, settings: Service) -> Response:
    found = await settings.find(caller)
    return responses.success({"settings": {"application": dataclasses.asdict(found) | {"wa_id": caller.account}}})


@router.patch(PATH, summary="Change application settings", response_model=MetaResponse)
async def change_settings(
    caller: Administrator, body: Annotated[schemas.Changes, json_body(schemas.Changes)], settings: Service
) -> Response:
    await settings.change(caller, body)
    return responses.success({})


@router.delete(PATH, summary="Reset to the defaults", response_model=MetaResponse)
async def reset_settings(caller: Administrator, settings: Service) -> Response:
    await settings.reset(caller)
    return responses.success({})
