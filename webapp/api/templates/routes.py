"""`GET`, `POST`, `PATCH` and `DELETE /v1/configs/templates`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from tidings.wire.codes import PARAMETER_INVALID
from webapp.api.templates import schemas
from webapp.api.templates.importing import Import
from webapp.api.templates.service import Templates
from webapp.auth.authenticator import Administrator
from webapp.http import responses
from webapp.http.bodies import json_body
from webapp.http.dependencies import part
from webapp.http.errors import InvalidRequest
from webapp.http.openapi.document import RESPONSES, MetaResponse

PATH = "/v1/configs/templates"
MAX_NAME = 512


router = APIRouter(tags=["templates"], responses=RESPONSES)
Service = Annotated[Templates, part(Templates)]


@router.get(PATH, summary="All templates", response_model=schemas.TemplatesResponse)
async def list_templates(caller: Administrator, templates: Service) -> Response:
    found = await templates.list(caller)
    return responses.success({"templates": [schemas.describe(template) for template in found]})


@router.post(
    PATH, summary="Create a template in one language", status_code=201, response_model=schemas.TemplatesResponse
)
async def create_template(
    caller: Administrator, definition: Annotated[schemas.Definition, json_body(schemas.Definition)], templates: Service
) -> Response:
    created = await templates.create(caller, definition)
    return responses.success({"templates": [schemas.describe(created)]}, status=201)


@router.post(
    PATH + "/import",
    summary="Create the templates of an export of the Graph API, all or none",
    status_code=201,
    response_model=schemas.TemplatesResponse,
)
async def import_templates(
    caller: Administrator, wanted: Annotated[Import, json_body(Import)], templates: Service
) -> Response:
    kept = await templates.import_all(caller, wanted)
    return responses.success({"templates": [schemas.describe(template) for template in kept]}, status=201)


@router.patch(
    PATH + "/{name}",
    summary="Replace components or category of a template in one language",
    response_model=schemas.TemplatesResponse,
)
async def edit_template(
    caller: Administrator,
    fields: Annotated[schemas.TemplateEdit, json_body(schemas.TemplateEdit)],
    templates: Service,
    name: str,
    language: str | None = None,
    namespace: str | None = None,
) -> Response:
    _require_names(name, language, namespace)
    edited = await templates.edit(caller, name, language, namespace, fields.model_dump(exclude_none=True))
    return responses.success({"templates": [schemas.describe(edited)]})


@router.delete(PATH + "/{name}", summary="Delete a template, in one language or in all", response_model=MetaResponse)
async def delete_template(
    caller: Administrator, templates: Service, name: str, language: str | None = None, namespace: str | None = None
) -> Response:
    _require_names(name, language, namespace)
    await templates.delete(caller, name, language, namespace)
    return responses.success({})


def _require_names(name: str, language: str | None, namespace: str | None) -> None:
    """Raise `InvalidRequest` for text that no template has. Stored names are ASCII, and databases treat other text
    differently.
    """
    if len(name) > MAX_NAME or not (given := name + (language or "") + (namespace or "")).isascii() or "\0" in given:
        raise InvalidRequest.because(PARAMETER_INVALID, "name: should be the name of a template")
