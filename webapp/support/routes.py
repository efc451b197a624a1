"""`GET /v1/support`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from webapp import answers, openapi
from webapp.authenticator import Authenticator
from webapp.support import schemas
from webapp.support.service import Support


def routes(support: Support, authenticator: Authenticator) -> APIRouter:
    router = APIRouter(tags=["support"])

    @router.get(
        "/v1/support",
        summary="The state of the installation",
        response_model=schemas.SupportAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_support(request: Request) -> Response:
        return answers.answer({"support": await support.describe(await authenticator.caller(request))})

    return router
