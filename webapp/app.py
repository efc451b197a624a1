"""The FastAPI application: the routers, the layers around them, and what becomes of errors."""

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
"""The busiest first."""


def create(
    parts: Iterable[object],
    *,
    max_requests: int,
    open_metrics: bool,
    only_login: Callable[[ASGIApp], ASGIApp] | None = None,
) -> FastAPI:
    """Serve all routes, which find `parts` by their class.

    open_metrics: also to callers without a token; only_login: a layer that refuses what is not to be served yet.
    """
    app = FastAPI(
        title="Tidings",
        version=__version__,
        description="The WhatsApp Business On-Premises API (v1), served by Tidings.",
        # Routes of their own, which ask for a token where others reach them.
        openapi_url=None,
        redirect_slashes=False,
    )
    dependencies.provide(app, parts)
    # As they stand. `include_router` would make a copy of each route that it then looks through a router at a time.
    app.router.routes.extend(route for router in _ROUTERS for route in router.routes)
    openapi.describe(app, webapp.metrics.routes.PATHS if open_metrics else ())
    app.add_exception_handler(APIError, envelope.answer_error)
    app.add_exception_handler(DatabaseError, envelope.answer_error)
    app.add_exception_handler(HTTPException, envelope.answer_http_exception)
    app.add_middleware(DirectRoutes, routes=app.router.routes)
    instrumentation.instrument(app)
    if only_login is not None:
        app.add_middleware(only_login)
    # Added last, so it is outside of everything else.
    app.add_middleware(envelope.Envelope, max_requests=max_requests)
    return app
