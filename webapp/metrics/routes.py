"""`GET /metrics`, and the same under `/v1/metrics`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from webapp import exposition, openapi
from webapp.authenticator import Authenticator
from webapp.metrics.service import Metrics


def routes(metrics: Metrics, authenticator: Authenticator) -> APIRouter:
    router = APIRouter(tags=["metrics"])

    operation = openapi.operation(openapi.BEARER, openapi.API_KEY)
    if not authenticator.is_keyed:
        operation["security"].append({})

    async def get_metrics(request: Request, format: exposition.Parameter = None) -> Response:
        await authenticator.monitor_if_keyed(request)
        return exposition.answer(exposition.choose(request, format), ("metrics",), {"": metrics.collect()})

    for path in ("/metrics", "/v1/metrics"):
        router.add_api_route(
            path,
            get_metrics,
            summary="What this Webapp counts",
            response_class=Response,
            responses=exposition.OPENAPI,
            openapi_extra=operation,
        )
    return router
