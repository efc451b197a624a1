"""`GET /v1/stats`, `/v1/stats/app` and `/v1/stats/db`, and their forms for each node."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response

from webapp.api.metrics import exposition
from webapp.api.metrics.exposition import Form
from webapp.api.metrics.service import NODE
from webapp.api.stats.service import Stats
from webapp.auth.authenticator import Monitored
from webapp.http.dependencies import part
from webapp.http.openapi.document import RESPONSES

router = APIRouter(tags=["stats"], responses=RESPONSES)
Service = Annotated[Stats, part(Stats)]
_FORMS: dict[str, Any] = {"response_class": Response, "responses": exposition.OPENAPI}


@router.get("/v1/stats", summary="Get the metrics of the Coreapps", **_FORMS)
@router.get("/v1/stats/app", summary="Get the metrics of the Coreapps", **_FORMS)
async def get_app(account: Monitored, form: Form, stats: Service) -> Response:
    return exposition.respond(form, ("stats", "app"), await stats.app(account))


@router.get("/v1/stats/app/internal", summary="Get the metrics of each Coreapp, by name", **_FORMS)
async def get_app_by_node(account: Monitored, form: Form, stats: Service) -> Response:
    return exposition.respond(form, ("stats", "app"), await stats.app_by_node(account))


@router.get("/v1/stats/db/internal", summary="Get counts of database rows, by Coreapp", **_FORMS)
async def get_db_by_node(account: Monitored, form: Form, stats: Service) -> Response:
    return exposition.respond(form, ("stats", "db"), {NODE: (await stats.db(account))[""]})


@router.get("/v1/stats/db", summary="Get counts of database rows", **_FORMS)
async def get_db(account: Monitored, form: Form, stats: Service) -> Response:
    return exposition.respond(form, ("stats", "db"), await stats.db(account))
