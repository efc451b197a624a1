"""`GET`, `POST` and `DELETE /v1/configs/templates`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tidings.wire.codes import PARAMETER_INVALID
from webapp import answers, bodies, openapi
from webapp.authenticator import Authenticator
from webapp.errors import InvalidRequest
from webapp.openapi import MetaAnswer
from webapp.templates import schemas
from webapp.templates.importing import Import
from webapp.templates.service import Templates

PATH = "/v1/configs/templates"
MAX_NAME = 512


def routes(templates: Templates, authenticator: Authenticator, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["templates"])

    @router.get(
        PATH,
        summary="All templates",
        response_model=schemas.TemplatesAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def list_templates(request: Request) -> Response:
        found = await templates.list(await authenticator.administrator(request))
        return answers.answer({"templates": [schemas.describe(template) for template in found]})

    @router.post(
        PATH,
        summary="Create a template in one language",
        status_code=201,
        response_model=schemas.TemplatesAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Definition),
    )
    async def create_template(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        definition = await bodies.read(request, schemas.Definition, limit=max_body)
        created = await templates.create(caller, definition)
        return answers.answer({"templates": [schemas.describe(created)]}, status=201)

    @router.post(
        PATH + "/import",
        summary="Create the templates of an export of the Graph API, all or none",
        status_code=201,
        response_model=schemas.TemplatesAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, Import),
    )
    async def import_templates(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        wanted = await bodies.read(request, Import, limit=max_body)
        kept = await templates.import_all(caller, wanted)
        return answers.answer({"templates": [schemas.describe(template) for template in kept]}, status=201)

    @router.delete(
        PATH + "/{name}",
        summary="Delete a template, in one language or in all",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def delete_template(
        request: Request, name: str, language: str | None = None, namespace: str | None = None
    ) -> Response:
        caller = await authenticator.administrator(request)
        # No such thing is stored, and databases differ in what they make of it.
        if (
            len(name) > MAX_NAME
            or not (given := name + (language or "") + (namespace or "")).isascii()
            or "\0" in given
        ):
            raise InvalidRequest.because(PARAMETER_INVALID, "name: should be the name of a template")
        await templates.delete(caller, name, language, namespace)
        return answers.answer({})

    return router
