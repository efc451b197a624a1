"""The HTTP side of the network: devices' endpoints, live connections over WebSocket, health and metrics."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from network import http
from network.blobs import routes as blobs
from network.connections import websocket
from network.connections.connections import Connections
from network.delay import Delay
from network.devices import routes as devices
from network.groups import routes as groups
from network.routing.router import Router
from tidings.storage.database import Database


def create(
    service: devices.Service,
    group_service: groups.Service,
    blob_service: blobs.Service,
    connections: Connections,
    router: Router,
    database: Database,
    delay: Delay,
    *,
    write_buffer: int,
) -> FastAPI:
    """The application."""
    app = FastAPI(title="Tidings network", description="See docs/device-api.md.", redirect_slashes=False)
    app.add_middleware(http.Pace, delay=delay)
    http.map_errors(app)
    app.include_router(devices.make_routes(service))
    app.include_router(groups.make_routes(group_service))
    app.include_router(blobs.make_routes(blob_service))
    app.include_router(websocket.make_routes(connections, write_buffer=write_buffer))
    app.include_router(_make_own_routes(connections, router, database))
    return app


def _make_own_routes(connections: Connections, router: Router, database: Database) -> APIRouter:
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
