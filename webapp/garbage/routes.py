"""`PUT /v1/services/message/gc` and `PUT /v1/services/media/gc`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from webapp import answers, openapi
from webapp.authenticator import Authenticator
from webapp.garbage import schemas
from webapp.garbage.service import Collections


def routes(collections: Collections, authenticator: Authenticator) -> APIRouter:
    router = APIRouter(tags=["services"])

    @router.put(
        "/v1/services/message/gc",
        summary="Delete old messages",
        response_model=schemas.CollectionAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def collect_messages(request: Request) -> Response:
        return await collect(request, "message")

    @router.put(
        "/v1/services/media/gc",
        summary="Delete media that were not used for long",
        response_model=schemas.CollectionAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def collect_media(request: Request) -> Response:
        return await collect(request, "media")

    async def collect(request: Request, kind: str) -> Response:
        caller = await authenticator.administrator(request)
        return answers.answer(schemas.describe(kind, await collections.start(caller, kind)))

    return router
