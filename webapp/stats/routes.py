"""`GET /v1/stats`, `/v1/stats/app` and `/v1/stats/db`, and their forms for each node."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from webapp import exposition, openapi
from webapp.authenticator import Authenticator
from webapp.metrics.service import NODE
from webapp.stats.service import Stats


def routes(stats: Stats, authenticator: Authenticator) -> APIRouter:
    router = APIRouter(tags=["stats"])
    operation = openapi.operation(openapi.BEARER, openapi.API_KEY)

    async def get_app(request: Request, format: exposition.Parameter = None) -> Response:
        await authenticator.monitor(request)
        form = exposition.choose(request, format)
        return exposition.answer(form, ("stats", "app"), await stats.app())

    for path in ("/v1/stats", "/v1/stats/app"):
        router.add_api_route(
            path,
            get_app,
            summary="What the Coreapps count",
            response_class=Response,
            responses=exposition.OPENAPI,
            openapi_extra=operation,
        )

    @router.get(
        "/v1/stats/app/internal",
        summary="What each Coreapp counts, by its name",
        response_class=Response,
        responses=exposition.OPENAPI,
        openapi_extra=operation,
    )
    async def get_app_by_node(request: Request, format: exposition.Parameter = None) -> Response:
        await authenticator.monitor(request)
        form = exposition.choose(request, format)
        return exposition.answer(form, ("stats", "app"), await stats.app_by_node())

    @router.get(
        "/v1/stats/db/internal",
        summary="What is in the database, by who counted it",
        response_class=Response,
        responses=exposition.OPENAPI,
        openapi_extra=operation,
    )
    async def get_db_by_node(request: Request, format: exposition.Parameter = None) -> Response:
        await authenticator.monitor(request)
        form = exposition.choose(request, format)
        return exposition.answer(form, ("stats", "db"), {NODE: (await stats.db())[""]})

    @router.get(
        "/v1/stats/db",
        summary="What is in the database",
        response_class=Response,
        responses=exposition.OPENAPI,
        openapi_extra=operation,
    )
    async def get_db(request: Request, format: exposition.Parameter = None) -> Response:
        await authenticator.monitor(request)
        form = exposition.choose(request, format)
        return exposition.answer(form, ("stats", "db"), await stats.db())

    return router
