"""Routes that are called thousands of times a second, and the short way to them (docs/decisions/0011)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from tidings.storage.database import DatabaseError
from webapp import envelope
from webapp.errors import APIError


class DirectRoute(APIRoute):
    """A route whose endpoint gets the request alone; its dependencies are for the OpenAPI document, and do not run."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return endpoint


class DirectRoutes:
    """The innermost layer: a request for the very path of a direct route is answered here.

    What the framework has further in costs a quarter of such a request: a search through the routes, a stack for the
    dependencies' ends, and three layers for errors, of which the application's own kinds are all that can come here.
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
