"""`GET /metrics`, and the same under `/v1/metrics`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from webapp.api.metrics import exposition
from webapp.api.metrics.exposition import Form
from webapp.api.metrics.service import ProcessMetrics
from webapp.auth import authenticator
from webapp.http.dependencies import part
from webapp.http.openapi.document import RESPONSES

PATHS = ("/metrics", "/v1/metrics")

router = APIRouter(tags=["metrics"], responses=RESPONSES, dependencies=[Depends(authenticator.monitor_if_keyed)])
Service = Annotated[ProcessMetrics, part(ProcessMetrics)]


@router.get(PATHS[0], summary="Get the metrics of this Webapp", response_class=Response, responses=exposition.OPENAPI)
@router.get(PATHS[1], summary="Get the metrics of this Webapp", response_class=Response, responses=exposition.OPENAPI)
async def get_metrics(form: Form, metrics: Service) -> Response:
    return exposition.respond(form, ("metrics",), {"": metrics.collect()})
