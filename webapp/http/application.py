"""The FastAPI application with the parts that its routes use, inside layers of the Webapp."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from fastapi import FastAPI, Request
from starlette.types import ASGIApp, Receive, Scope, Send


class LayeredApplication(FastAPI):
    """FastAPI application. Each request passes its `layers`, of which the innermost is `framework`.

    The framework's own middlewares would be outside of layers added with `add_middleware`, and every request would
    pass them.
    """

    def __init__(self, parts: Iterable[object], **options: Any) -> None:
        """Create an application without routes and layers.

        parts: one per class, by which routes find them
        options: those of FastAPI
        """
        super().__init__(**options)
        self.parts: Mapping[type, Any] = {type(part): part for part in parts}
        self.layers: ASGIApp = self.framework
        self.add_exception_handler(Exception, _pass_on)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self.layers(scope, receive, send)

    async def framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request by the framework's router. Raises what a route raises, unless it has an exception handler."""
        await super().__call__(scope, receive, send)


async def _pass_on(request: Request, error: Exception) -> NoReturn:
    # The outermost layer responds to unexpected errors. Without this handler the framework would.
    raise error
