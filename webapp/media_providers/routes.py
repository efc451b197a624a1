"""`GET`, `POST` and `DELETE /v1/settings/application/media/providers`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from webapp import answers, bodies, openapi
from webapp.authenticator import Authenticator
from webapp.media_providers import schemas
from webapp.media_providers.service import MediaProviders
from webapp.openapi import MetaAnswer

PATH = "/v1/settings/application/media/providers"


def routes(providers: MediaProviders, authenticator: Authenticator, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["settings"])

    @router.get(
        PATH,
        summary="All media providers",
        response_model=schemas.ProvidersAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def list_providers(request: Request) -> Response:
        found = await providers.all(await authenticator.administrator(request))
        return answers.answer({"settings": {"application": {"media": {"providers": found}}}})

    @router.post(
        PATH,
        summary="Add or replace media providers",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.MediaProviders),
    )
    async def save_providers(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        await providers.save(caller, await bodies.read(request, schemas.MediaProviders, limit=max_body))
        return answers.answer({})

    @router.delete(
        PATH + "/{name}",
        summary="Delete a media provider",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def delete_provider(request: Request, name: Annotated[str, Path(examples=["files"])]) -> Response:
        await providers.delete(await authenticator.administrator(request), name)
        return answers.answer({})

    return router
