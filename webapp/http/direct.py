"""Fast path to routes that are called thousands of times per second (docs/decisions/0011)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from tidings.storage.database import DatabaseError
from webapp.http import envelope
from webapp.http.errors import APIError

Respond = Callable[[Request], Coroutine[Any, Any, Response]]


class DirectRoute(APIRoute):
    """Route whose endpoint receives only the request.

    Its dependencies appear in the OpenAPI document and do not run.
    """

    def get_route_handler(self) -> Respond:
        endpoint: Respond = self.endpoint
        return endpoint


class SendingPaths(Protocol):
    """API on other paths than those of v1, with its own hot route."""

    def sends(self, path: str) -> bool:
        """Return whether messages are posted to a path."""
        ...

    def route(self, path: str) -> str:
        """Return the route of a path, with placeholders for ids."""
        ...

    def respond(self, request: Request) -> Coroutine[Any, Any, Response]:
        """Return the response to a request. Raises unexpected errors only."""
        ...


class DirectRoutes:
    """Layer that serves the hot routes and counts their requests. Other requests pass to the layers inside it.

    Those layers cost a third of a request to a hot route: metrics of any route, the search through the routes, a stack
    for the exits of dependencies, and the framework's own. Only the application's own kinds of errors can occur here.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Iterable[BaseRoute],
        *,
        observe: Callable[[str, str, int, float], None],
        other: SendingPaths | None = None,
        admit: Callable[[str], None] | None = None,
    ) -> None:
        """Create the layer.

        routes: those of v1, of which it serves the direct ones whose path has no parameters
        observe: counts a request by method, route and status, with its duration in seconds
        other: API with further hot routes; `None` for none
        admit: raises an error for a request to a path, as a test has requested; `None` outside test mode
        """
        self._app = app
        self._observe = observe
        self._other = other
        self._admit = admit
        self._routes: dict[tuple[str, str], tuple[str, Respond]] = {
            (method, route.path): (route.path, functools.partial(_respond, route))
            for route in routes
            if isinstance(route, DirectRoute) and not route.param_convertors
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._find(scope) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        route, respond = found
        started, status = time.perf_counter(), 500
        try:
            if self._admit is not None:
                self._admit(scope["path"])
            response = await respond(Request(scope, receive, send))
            status = response.status_code
            await response(scope, receive, send)
        finally:
            self._observe(scope["method"], route, status, time.perf_counter() - started)

    def _find(self, scope: Scope) -> tuple[str, Respond] | None:
        """Return name and function of the hot route of a request; `None` for another one."""
        method, path = scope["method"], scope["path"]
        found = self._routes.get((method, path))
        if found is None and method == "POST" and self._other is not None and self._other.sends(path):
            return self._other.route(path), self._other.respond
        return found


async def _respond(route: DirectRoute, request: Request) -> Response:
    request.scope["route"] = route
    try:
        response: Response = await route.endpoint(request)
    except (APIError, DatabaseError) as error:
        return await envelope.respond_with_error(request, error)
    return response
