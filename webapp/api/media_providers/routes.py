"""`GET`, `POST` and `DELETE /v1/settings/application/media/providers`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from webapp.api.media_providers import schemas
from webapp.api.media_providers.service import ProviderList
from webapp.auth.authenticator import Administrator
from webapp.http import responses
from webapp.http.bodies import json_body
from webapp.http.dependencies import part
from webapp.http.openapi.document import RESPONSES, MetaResponse

PATH = "/v1/settings/application/media/providers"


router = APIRouter(tags=["settings"], responses=RESPONSES)
Service = Annotated[ProviderList, part(ProviderList)]


@router.get(PATH, summary="All media providers", response_model=schemas.ProvidersResponse)
async def list_providers(caller: Administrator, providers: Service) -> Response:
    found = await providers.all(caller)
    return responses.success({"settings": {"application": {"media": {"providers": found}}}})


@router.post(PATH, summary="Add or replace media providers", response_model=MetaResponse)
async def save_providers(
    caller: Administrator,
    body: Annotated[schemas.MediaProviders, json_body(schemas.MediaProviders)],
    providers: Service,
) -> Response:
    await providers.save(caller, body)
    return responses.success({})


@router.delete(PATH + "/{name}", summary="Delete a media provider", response_model=MetaResponse)
async def delete_provider(
    caller: Administrator, providers: Service, name: Annotated[str, Path(examples=["files"])]
) -> Response:
    await providers.delete(caller, name)
    return responses.success({})
