"""`GET`, `PATCH` and `DELETE /v1/settings/application`."""

from __future__ import annotations

import dataclasses

from fastapi import APIRouter, Request, Response

from webapp import answers, bodies, openapi
from webapp.application_settings import schemas
from webapp.application_settings.service import Settings
from webapp.authenticator import Authenticator
from webapp.openapi import MetaAnswer

PATH = "/v1/settings/application"


def routes(settings: Settings, authenticator: Authenticator, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["settings"])

    @router.get(
        PATH,
        summary="The application settings",
        response_model=schemas.SettingsAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_settings(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        found = await settings.find(caller)
        return answers.answer({"settings": {"application": dataclasses.asdict(found) | {"wa_id": caller.account}}})

    @router.patch(
        PATH,
        summary="Change application settings",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Changes),
    )
    async def change_settings(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        await settings.change(caller, await bodies.read(request, schemas.Changes, limit=max_body))
        return answers.answer({})

    @router.delete(
        PATH,
        summary="Back to the defaults",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def reset_settings(request: Request) -> Response:
        await settings.reset(await authenticator.administrator(request))
        return answers.answer({})

    return router
