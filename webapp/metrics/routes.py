"""`GET /metrics`, and the same under `/v1/metrics`."""

from __future__ import annotations

import prometheus_client
from fastapi import APIRouter, Request, Response

from webapp import openapi
from webapp.gate import Gate


def routes(gate: Gate) -> APIRouter:
    router = APIRouter(tags=["metrics"])

    async def get_metrics(request: Request) -> Response:
        await gate.monitor_if_keyed(request)
        return Response(prometheus_client.generate_latest(), media_type=prometheus_client.CONTENT_TYPE_LATEST)

    for path in ("/metrics", "/v1/metrics"):
        router.add_api_route(
            path,
            get_metrics,
            summary="Metrics in Prometheus text format",
            response_class=Response,
            responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
            openapi_extra=openapi.operation(openapi.BEARER, openapi.API_KEY),
        )
    return router
