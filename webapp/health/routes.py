"""`GET /v1/health`, and `GET /` for load balancers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from webapp import answers, authenticator, openapi
from webapp.dependencies import part
from webapp.health import schemas
from webapp.health.service import HealthCheck

router = APIRouter(tags=["health"])
Service = Annotated[HealthCheck, part(HealthCheck)]


@router.get(
    "/v1/health",
    summary="Is there a connection to the network?",
    response_model=schemas.HealthAnswer,
    dependencies=[Depends(authenticator.monitor)],
)
async def get_health(health: Service) -> Response:
    return answers.answer({"health": await health.describe()})


# Target groups of load balancers look here, without a token, as they did with the original.
@router.get("/", summary="Is this Webapp alive?", response_model=openapi.MetaAnswer, openapi_extra={"security": [{}]})
async def get_root() -> Response:
    return answers.answer({})
