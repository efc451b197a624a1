"""The HTTP side of the network: devices' endpoints, live connections over WebSocket, health and metrics."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, FastAPI
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from network import http
from network.connections.connections import Connections
from network.delay import Delay
from network.routing.router import Router
from tidings.storage.database import Database


def create(routes: Iterable[APIRouter], delay: Delay) -> FastAPI:
    """The application."""
    app = FastAPI(title="Tidings network", description="See docs/device-api.md.", redirect_slashes=False)
    app.add_middleware(http.Pace, delay=delay)
    http.map_errors(app)
    for router in routes:
        app.include_router(router)
    return app


def operator_routes(connections: Connections, router: Router, database: Database) -> APIRouter:
    """Endpoints for whoever runs the network: health and metrics."""
    routes = APIRouter()

    @routes.get("/health")
    async def health() -> JSONResponse:
        alive = await database.is_alive()
        state = {
            "status": "ok" if alive else "degraded",
            "database": "ok" if alive else "away",
            "connections": len(connections),
            "devices_online": router.online,
            "undecided": router.undecided,
        }
        return JSONResponse(state, 200 if alive else 503)

    @routes.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return routes
