"""Fast path to routes that are called thousands of times per second (docs/decisions/0011)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from tidings.storage.database import DatabaseError
from webapp.http import envelope
from webapp.http.errors import APIError


class DirectRoute(APIRoute):
    """Route whose endpoint receives only the request.

    Its dependencies appear in the OpenAPI document and do not run.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return endpoint


class DirectRoutes:
    """Innermost middleware: it calls direct routes whose path matches exactly.

    The framework's further layers cost a quarter of such a request: the search through the routes, a stack for
    the exits of dependencies, and three layers of error handling. Only the application's own kinds of errors can
    occur here.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._routes = {
            (method, route.path): route
            for route in routes
            if isinstance(route, DirectRoute) and not route.param_convertors
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive, send)
        try:
            answer = await route.endpoint(request)
        except (APIError, DatabaseError) as error:
            answer = await envelope.answer_error(request, error)
        await answer(scope, receive, send)
