"""HTTP application of the network: devices' endpoints, live connections over WebSocket, health and metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from network import errors, http
from network.connections.connections import Connections
from network.delay import Delay
from network.routing.router import Router
from network.wiring import Routing
from tidings.http.limited_protocol import consume, mark_authenticated
from tidings.objects.watch import StoreWatch
from tidings.observability.readiness import AWAY, OK
from tidings.secrets.api_key import NO_KEY, ApiKey
from tidings.storage.database import Database

# Rate-limit tokens that one scrape consumes for an unauthenticated client.
METRICS = 4.0


def create(routes: Iterable[APIRouter], delay: Delay, *, is_local: bool = True) -> FastAPI:
    """Return the ASGI application with these routes.

    is_local: the listener is reachable from this machine only, so the application serves `/openapi.json`.
    """
    app = FastAPI(
        title="Tidings network",
        description="See docs/device-api.md.",
        redirect_slashes=False,
        openapi_url="/openapi.json" if is_local else None,
    )
    app.add_middleware(http.SimulatedLatency, delay=delay)
    http.map_errors(app)
    # Added directly, because `include_router` would copy each route.
    app.router.routes.extend(route for router in routes for route in router.routes)
    return app


def operator_routes(
    connections: Connections,
    router: Router,
    database: Database,
    *,
    routing: Routing | None = None,
    blobs: StoreWatch | None = None,
    api_key: ApiKey = NO_KEY,
    is_local: bool = True,
    has_metrics: bool = True,
) -> APIRouter:
    """Return the operator's endpoints: health for all clients, metrics for this machine or with the API key.

    routing: state of the cluster; `None` without one.
    has_metrics: False when metrics have a separate listener.
    """
    routes = APIRouter()

    @routes.get("/health/live")
    async def live() -> JSONResponse:
        return JSONResponse({"status": "live"})

    @routes.get("/health")
    async def health() -> JSONResponse:
        alive = await database.is_alive()
        is_well = alive and (routing is None or routing.is_ready)
        state = {
            "status": "ok" if is_well else "degraded",
            "database": "ok" if alive else "away",
            "connections": len(connections),
            "devices_online": router.online,
            "undecided": router.undecided,
        }
        return JSONResponse(state | _described(routing), 200 if alive else 503)

    @routes.get("/health/ready")
    async def ready() -> JSONResponse:
        # `is_alive` queries the database at most once a second, however often this endpoint is called.
        alive = await database.is_alive()
        stored = blobs.state if blobs is not None else OK
        ready = alive and stored == OK and (routing is None or routing.is_ready)
        state = {"status": "ready" if ready else "not ready", "database": OK if alive else AWAY, "blobs": stored}
        return JSONResponse(state | _described(routing), 200 if ready else 503)

    @routes.get("/health/load")
    async def load() -> JSONResponse:
        return JSONResponse(routing.describe_load() if routing is not None else {})

    async def metrics(request: Request) -> Response:
        if not is_local:
            if not api_key.is_given(request.headers.get("authorization", "").encode("latin-1")):
                raise errors.Unauthorized("metrics require the key of WA_API_KEY: Authorization: Apikey …")
            mark_authenticated(request.scope)
        consume(request.scope, METRICS)
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    if has_metrics:
        routes.add_api_route("/metrics", metrics, methods=["GET"])
    return routes


def _described(routing: Routing | None) -> dict[str, Any]:
    return routing.describe() if routing is not None else {}
