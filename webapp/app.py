"""The FastAPI application: routers, middlewares and error handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

import webapp.api.account.routes
import webapp.api.application_settings.routes
import webapp.api.backup.routes
import webapp.api.business_encryption
import webapp.api.certificates.routes
import webapp.api.cloud.openapi.routes
import webapp.api.compliance.routes
import webapp.api.contacts.routes
import webapp.api.documents
import webapp.api.garbage
import webapp.api.groups.routes
import webapp.api.health.routes
import webapp.api.media.routes
import webapp.api.media_providers.routes
import webapp.api.messages.routes
import webapp.api.metrics.routes
import webapp.api.profile.routes
import webapp.api.stats.routes
import webapp.api.stickerpacks.routes
import webapp.api.support
import webapp.api.templates.routes
import webapp.api.upstream.routes
import webapp.api.users.routes
from tidings import __version__
from tidings.storage.database import DatabaseError
from webapp.api.cloud.facade import Facade, FacadeLayer
from webapp.api.d360.layer import D360Layer
from webapp.api.metrics import instrumentation
from webapp.api.testing.layer import TestLayer
from webapp.api.testing.mode import TestMode
from webapp.auth.authenticator import Authenticator
from webapp.console.layer import ConsoleLayer, ConsoleSite
from webapp.http import envelope
from webapp.http.application import LayeredApplication
from webapp.http.direct import DirectRoutes
from webapp.http.errors import APIError
from webapp.http.openapi import document

_ROUTERS = (
    webapp.api.messages.routes.router,
    webapp.api.contacts.routes.router,
    webapp.api.users.routes.router,
    webapp.api.application_settings.routes.router,
    webapp.api.media.routes.router,
    webapp.api.templates.routes.router,
    webapp.api.account.routes.router,
    webapp.api.profile.routes.router,
    webapp.api.compliance.routes.router,
    webapp.api.business_encryption.router,
    webapp.api.backup.routes.router,
    webapp.api.media_providers.routes.router,
    webapp.api.stickerpacks.routes.router,
    webapp.api.certificates.routes.router,
    webapp.api.health.routes.router,
    webapp.api.garbage.router,
    webapp.api.groups.routes.router,
    webapp.api.support.router,
    webapp.api.stats.routes.router,
    webapp.api.metrics.routes.router,
    webapp.api.documents.router,
    webapp.api.upstream.routes.router,
)
"""Routers, ordered by how often they are called."""


def create(
    parts: Iterable[object],
    *,
    max_requests: int,
    open_metrics: bool,
    only_login: Callable[[ASGIApp], ASGIApp] | None = None,
    facade: Facade | None = None,
    testing: TestMode | None = None,
    console: ConsoleSite | None = None,
) -> LayeredApplication:
    """Create an application that serves all routes, which find `parts` by their class.

    open_metrics: serve metrics without a token as well
    only_login: middleware that refuses requests before the first password is changed; `None` for none
    facade: the Cloud API; `None` to serve only v1
    testing: the test mode; `None` when it is off
    console: the pages at `/console`; `None` when they are off
    """
    app = LayeredApplication(
        parts,
        title="Tidings",
        version=__version__,
        description="The WhatsApp Business On-Premises API (v1), served by Tidings.",
        # `/openapi.json` has a route that requires a token where other machines reach the API.
        openapi_url=None,
        redirect_slashes=False,
    )
    # Routes are added directly. `include_router` would copy each route and search one router at a time.
    app.router.routes.extend(route for router in _ROUTERS for route in router.routes)
    if facade is not None:
        app.router.routes.extend(webapp.api.cloud.openapi.routes.router.routes)
    document.describe(app, webapp.api.metrics.routes.PATHS if open_metrics else ())
    app.add_exception_handler(APIError, envelope.respond_with_error)
    app.add_exception_handler(DatabaseError, envelope.respond_with_error)
    app.add_exception_handler(HTTPException, envelope.respond_to_http_exception)
    layers = _counted(app, facade, testing)
    if only_login is not None:
        layers = only_login(layers)
    # Before the check of the first password, which reads the header of v1.
    layers = D360Layer(layers, app.parts[Authenticator], facade)
    if console is not None:
        # It checks sessions itself, also while the first password is unchanged.
        layers = ConsoleLayer(layers, console)
    app.layers = envelope.EnvelopeMiddleware(layers, max_requests, dialect=facade)
    return app


def _counted(app: LayeredApplication, facade: Facade | None, testing: TestMode | None) -> ASGIApp:
    """Return the layers whose requests are counted, the innermost first. The last one counts those of hot routes."""
    layers: ASGIApp = app.framework
    if facade is not None:
        layers = FacadeLayer(layers, facade)
    apply_fault: Callable[[str], None] | None = None
    if testing is not None:
        test_layer = TestLayer(layers, testing, facade)
        layers, apply_fault = test_layer, test_layer.apply_fault
    layers = instrumentation.instrument(layers, facade)
    return DirectRoutes(layers, app.router.routes, observe=instrumentation.observe, other=facade, admit=apply_fault)
