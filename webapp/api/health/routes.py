"""`GET /v1/health`, and without a token `GET /health/live`, `GET /health/ready` and `GET /` for supervisors."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response

from tidings.observability.readiness import OK, Readiness
from webapp.api.health import schemas
from webapp.api.health.service import HealthCheck
from webapp.auth.authenticator import Monitored
from webapp.http import responses
from webapp.http.dependencies import part
from webapp.http.openapi import document
from webapp.http.openapi.document import RESPONSES

router = APIRouter(tags=["health"], responses=RESPONSES)
Service = Annotated[HealthCheck, part(HealthCheck)]


@router.get(
    "/v1/health",
    summary="Get the health of the Coreapps",
    response_model=schemas.HealthResponse,
)
async def get_health(account: Monitored, health: Service) -> Response:
    return responses.success({"health": await health.describe(account)})


_OPEN: dict[str, Any] = {"security": [{}]}


@router.get(
    "/health/live", summary="Get the liveness of this Webapp", response_model=schemas.LiveResponse, openapi_extra=_OPEN
)
async def get_live() -> Response:
    return responses.success({"health": {"status": "live"}})


@router.get(
    "/health/ready",
    summary="Get the readiness of this Webapp",
    response_model=schemas.ReadyResponse,
    responses={503: {"model": schemas.ReadyResponse, "description": "what is away"}},
    openapi_extra=_OPEN,
)
async def get_ready(readiness: Annotated[Readiness, part(Readiness)]) -> Response:
    found = await readiness.check()
    ready = set(found.values()) == {OK}
    state = {"status": "ready" if ready else "not ready", **found}
    return responses.success({"health": state}, status=200 if ready else 503)


# Target groups of load balancers poll this path without a token, as with the On-Premises API.
@router.get(
    "/",
    summary="Check that this Webapp responds",
    response_model=document.MetaResponse,
    openapi_extra={"security": [{}]},
)
async def get_root() -> Response:
    return responses.success({})
