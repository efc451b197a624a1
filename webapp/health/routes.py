"""`GET /v1/health`, and `GET /` for load balancers."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from webapp import answers, openapi
from webapp.authenticator import Authenticator
from webapp.health import schemas
from webapp.health.service import HealthCheck


def routes(health: HealthCheck, authenticator: Authenticator) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get(
        "/v1/health",
        summary="Is there a connection to the network?",
        response_model=schemas.HealthAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, openapi.API_KEY),
    )
    async def get_health(request: Request) -> Response:
        await authenticator.monitor(request)
        return answers.answer({"health": await health.describe()})

    # Target groups of load balancers look here, without a token, as they did with the original.
    @router.get(
        "/", summary="Is this Webapp alive?", response_model=openapi.MetaAnswer, openapi_extra={"security": [{}]}
    )
    async def get_root(request: Request) -> Response:
        return answers.answer({})

    return router
