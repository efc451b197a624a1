"""The FastAPI application: routers, middlewares and error handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

import webapp.account.routes
import webapp.application_settings.routes
import webapp.backup.routes
import webapp.business_encryption.routes
import webapp.certificates.routes
import webapp.compliance.routes
import webapp.contacts.routes
import webapp.documents.routes
import webapp.garbage.routes
import webapp.groups.routes
import webapp.health.routes
import webapp.media.routes
import webapp.media_providers.routes
import webapp.messages.routes
import webapp.metrics.routes
import webapp.profile.routes
import webapp.stats.routes
import webapp.stickerpacks.routes
import webapp.support.routes
import webapp.templates.routes
import webapp.users.routes
from tidings import __version__
from tidings.storage.database import DatabaseError
from webapp import dependencies, envelope, instrumentation, openapi
from webapp.direct import DirectRoutes
from webapp.errors import APIError

_ROUTERS = (
    webapp.messages.routes.router,
    webapp.contacts.routes.router,
    webapp.users.routes.router,
    webapp.application_settings.routes.router,
    webapp.media.routes.router,
    webapp.templates.routes.router,
    webapp.account.routes.router,
    webapp.profile.routes.router,
    webapp.compliance.routes.router,
    webapp.business_encryption.routes.router,
    webapp.backup.routes.router,
    webapp.media_providers.routes.router,
    webapp.stickerpacks.routes.router,
    webapp.certificates.routes.router,
    webapp.health.routes.router,
    webapp.garbage.routes.router,
    webapp.groups.routes.router,
    webapp.support.routes.router,
    webapp.stats.routes.router,
    webapp.metrics.routes.router,
    webapp.documents.routes.router,
)
"""Routers, ordered by how often they are called."""


def create(
    parts: Iterable[object],
    *,
    max_requests: int,
    open_metrics: bool,
    only_login: Callable[[ASGIApp], ASGIApp] | None = None,
) -> FastAPI:
    """Create an application that serves all routes, which find `parts` by their class.

    open_metrics: serve metrics without a token as well
    only_login: middleware that refuses requests before the first password is changed; `None` for none
    """
    app = FastAPI(
        title="Tidings",
        version=__version__,
        description="The WhatsApp Business On-Premises API (v1), served by Tidings.",
        # `/openapi.json` has a route that requires a token where other machines reach the API.
        openapi_url=None,
        redirect_slashes=False,
    )
    dependencies.provide(app, parts)
    # Routes are added directly. `include_router` would copy each route and search one router at a time.
    app.router.routes.extend(route for router in _ROUTERS for route in router.routes)
    openapi.describe(app, webapp.metrics.routes.PATHS if open_metrics else ())
    app.add_exception_handler(APIError, envelope.answer_error)
    app.add_exception_handler(DatabaseError, envelope.answer_error)
    app.add_exception_handler(HTTPException, envelope.answer_http_exception)
    app.add_middleware(DirectRoutes, routes=app.router.routes)
    instrumentation.instrument(app)
    if only_login is not None:
        app.add_middleware(only_login)
    # Added last, so that it is the outermost layer.
    app.add_middleware(envelope.EnvelopeMiddleware, max_requests=max_requests)
    return app
