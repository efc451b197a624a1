"""Middleware that serves the console: checks host, session, role and form, and adds the security headers."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import weakref
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tidings.http.hosts import Hosts
from tidings.pages import headers
from tidings.pages.assets import PageAssets
from tidings.pages.event_streams import EventStreamResponse, EventStreams
from tidings.storage import outages
from tidings.wire.codes import PARAMETER_INVALID
from webapp.console import routes
from webapp.console.access import forms
from webapp.console.access.forms import FormFields
from webapp.console.access.sessions import ConsoleSession, SessionCookies
from webapp.console.page_request import ConsoleRoute, PageRequest, RequiredRole, redirect
from webapp.console.parts import FaultCount
from webapp.console.render import pages
from webapp.console.render.pages import LivePart, PageContent, PageTemplates
from webapp.console.streams import POLL, PageWatch, WatchedPage
from webapp.http import envelope
from webapp.http.errors import (
    AdministratorRequired,
    APIError,
    InvalidRequest,
    MethodNotAllowed,
    Overloaded,
    Unauthenticated,
    UnknownPath,
    WrongHost,
)
from webapp.http.responses import error_response

log = logging.getLogger(__name__)

ROOT = "/console"
STREAM = "/console/stream"
STATIC = "/console/static"
# Longest path with query of a page that a stream is about, characters.
_MAX_TARGET = 4_096
_HTMX = "hx-request"


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class ConsoleSite:
    """Parts that serve the pages."""

    hosts: Hosts  # names by which clients may address the console, in addition to those of loopback
    cookies: SessionCookies
    templates: PageTemplates
    assets: PageAssets
    streams: EventStreams
    account: str  # first number of the installation
    faults: FaultCount | None  # counts what is configured to fail; `None` outside the test mode
    # Users with a request in progress for a route that is exclusive.
    busy: set[str] = dataclasses.field(default_factory=set)
    # Page of each open stream by token id, path and query. The stream keeps it.
    watched: weakref.WeakValueDictionary[tuple[str, str, str], WatchedPage] = dataclasses.field(
        default_factory=weakref.WeakValueDictionary
    )

    async def respond(self, request: Request, nonce: str) -> Response:
        """Return the response to a request. Raises `APIError`."""
        wrong = self.hosts.host_error(request.scope["headers"], b"/", is_local=True)
        if wrong:
            raise WrongHost(wrong)
        path = request.scope["path"]
        if _is_static(path):
            found = self.assets.respond(request, path.removeprefix(f"{STATIC}/"))
            if found is None:
                raise UnknownPath(path)
            return found
        session = request.state.console_session = await self.cookies.find(request)
        if path == STREAM:
            return self._stream(request, session)
        route, params = _find(request.method, path)
        request.scope["route"] = route
        page = PageRequest(request, params, _query(request.scope["query_string"]), session)
        if (refusal := self._refuse(page, route)) is not None:
            return refusal
        if request.method == "POST":
            page.form = await forms.read(request, route.max_file)
            given = page.form.text(forms.TOKEN)
            if not forms.is_from_here(request) or not self.cookies.is_form_token(request, session, given):
                raise AdministratorRequired(pages.text("errors", "form_token"))
        if (watched := self._find_watched(page, route)) is not None:
            return self._rendered(page, watched.content, nonce, watched.live)
        with self._serve_exclusively(route, session):
            result = await route.handler(page)
        return self._rendered(page, result, nonce) if isinstance(result, PageContent) else result

    def _refuse(self, page: PageRequest, route: ConsoleRoute) -> Response | None:
        """Return a redirection to the login for a request without a session. Raises `AdministratorRequired`, and
        `Unauthenticated` for a page that updates itself.
        """
        if route.role is RequiredRole.NONE:
            return None
        if page.session is None:
            if _HTMX in page.request.headers:
                raise Unauthenticated(pages.text("errors", "ended"))
            target = page.request.scope["path"]
            query = page.request.scope["query_string"].decode("latin-1")
            destination = f"{target}?{query}" if query else target
            is_page = page.request.method == "GET" and target != ROOT
            return redirect("/console/login", {"next": destination} if is_page else {})
        _require(page.session, route, self.account)
        return None

    def _find_watched(self, page: PageRequest, route: ConsoleRoute) -> WatchedPage | None:
        """Return what its stream has just rendered, for a page that updates itself. It is not read a second time."""
        if page.session is None or not route.is_live or _HTMX not in page.request.headers:
            return None
        query = page.request.scope["query_string"].decode("latin-1")
        found = self.watched.get((page.session.caller.jti, page.request.scope["path"], query))
        return found if found is not None and found.is_current else None

    @contextlib.contextmanager
    def _serve_exclusively(self, route: ConsoleRoute, session: ConsoleSession | None) -> Iterator[None]:
        """Serve one request of a user at a time if the route requires it. Raises `Overloaded`."""
        if session is None or not route.is_exclusive:
            yield
            return
        user = session.caller.username
        if user in self.busy:
            raise Overloaded(pages.text("errors", "busy"))
        self.busy.add(user)
        try:
            yield
        finally:
            self.busy.discard(user)

    def _rendered(self, page: PageRequest, content: PageContent, nonce: str, live: LivePart | None = None) -> Response:
        response = HTMLResponse(status_code=content.status)
        common = self._page_values(page, nonce, response)
        response.body = self.templates.render(content, common, live).encode()
        response.headers["Content-Length"] = str(len(response.body))
        if page.session is not None and _HTMX not in page.request.headers:
            # A page that updates itself does not keep an unused session alive.
            self.cookies.refresh(page.request, response, page.session)
        return response

    def _page_values(self, page: PageRequest, nonce: str, response: Response | None) -> Mapping[str, Any]:
        """Return the values that every page has."""
        session, request = page.session, page.request
        query = request.scope["query_string"].decode("latin-1")
        path = request.scope["path"]
        return {
            "nonce": nonce,
            "csrf": self.cookies.form_token(request, response, session),
            "user": session.caller.username if session is not None else "",
            "number": session.caller.account if session is not None else "",
            "is_operator": self._is_operator(session),
            "path": path,
            "here": f"{path}?{query}" if query else path,
            "faults_left": self.faults.total() if self.faults is not None else 0,
            "is_testing": self.faults is not None,
            "poll_seconds": POLL,
            "is_live": request.method == "GET",
            "pages": routes.menu(is_testing=self.faults is not None and self._is_operator(session)),
        }

    def _is_operator(self, session: ConsoleSession | None) -> bool:
        return session is not None and session.caller.account == self.account

    def _stream(self, request: Request, session: ConsoleSession | None) -> Response:
        """Return the event stream of a page. Raises `APIError`, among them `Overloaded`."""
        if session is None:
            return Response(status_code=204)  # makes the browser give up
        query = _query(request.scope["query_string"])
        target = query.text("of")
        parts = _page_path(target)
        route, params = _find("GET", parts.path)
        if not route.is_live:
            raise InvalidRequest.because(PARAMETER_INVALID, "of: should be a page that updates itself")
        _require(session, route, self.account)
        request.scope["route"] = ConsoleRoute("GET", STREAM, route.handler)
        scope = {**request.scope, "path": parts.path, "query_string": parts.query.encode("latin-1", "replace")}
        page = PageRequest(Request(scope), params, _query(scope["query_string"]), session)

        key = (session.caller.jti, parts.path, parts.query)
        kept: WatchedPage | None = None

        async def digest() -> str | None:
            nonlocal kept
            if (await self.cookies.find(request)) is None:
                return None
            content = await route.handler(page)
            if not isinstance(content, PageContent):
                return None
            live = self.templates.live_part(content, self._page_values(page, "", None))
            kept = self.watched[key] = WatchedPage(content, live)
            return live.digest

        since = request.headers.get("last-event-id") or query.text("since")
        slot = self.streams.open(session.caller.username, ())
        if slot is None:
            raise Overloaded("too many pages are open", retry_after=POLL)
        return EventStreamResponse(PageWatch(slot, digest, since))

    def error(self, request: Request, error: APIError, nonce: str) -> Response:
        """Return the page about an error. A stream and a static file have no page."""
        plain = error_response(error)
        if request.scope["path"] == STREAM or _is_static(request.scope["path"]):
            return plain
        values = {
            "message": error.problems[0].details,
            "code": error.problems[0].code,
            "error_status": plain.status_code,
            "request_id": request.state.request_id,
        }
        page = PageRequest(request, {}, FormFields(), getattr(request.state, "console_session", None))
        content = PageContent("error.html", values, plain.status_code)
        response = self._rendered(page, content, nonce)
        for name, value in error.headers.items():
            if name.lower() == "allow":
                response.headers[name] = value
        if retry_after := plain.headers.get("Retry-After"):
            response.headers["Retry-After"] = retry_after
        return response


class ConsoleLayer:
    """Middleware that serves `/console` and passes on all other requests."""

    def __init__(self, app: ASGIApp, site: ConsoleSite) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path == ROOT or path.startswith(f"{ROOT}/")):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        nonce = headers.make_nonce()
        request.state.has_caching = True
        try:
            response = await self._site.respond(request, nonce)
        except Exception as error:
            if not isinstance(error, APIError) and not outages.is_outage(error):
                log.exception("console.failed", extra={"request_id": request.state.request_id, "path": path[:200]})
            response = self._site.error(request, envelope.as_api_error(error, request.state.request_id), nonce)
        # Static files and streams have headers of their own.
        for name, value in headers.of_page(nonce).items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)


def _is_static(path: str) -> bool:
    return path.startswith(f"{STATIC}/")


def _find(method: str, path: str) -> tuple[ConsoleRoute, Mapping[str, str]]:
    """Return the route of a path, with the parameters in it. Raises `UnknownPath` and `MethodNotAllowed`."""
    found = [(route, params) for route in routes.ROUTES if (params := route.match(path)) is not None]
    if not found:
        raise UnknownPath(path)
    for route, params in found:
        if route.method == method:
            return route, params
    raise MethodNotAllowed(method, path, ", ".join(sorted({route.method for route, _ in found})))


def _page_path(target: str) -> SplitResult:
    """Return the path and query of a page. Raises `InvalidRequest`."""
    try:
        parts = urlsplit(target)
    except ValueError:
        parts = None
    if parts is None or len(target) > _MAX_TARGET or parts.netloc or parts.scheme:
        raise InvalidRequest.because(PARAMETER_INVALID, "of: should be the path of a page")
    return parts


def _require(session: ConsoleSession, route: ConsoleRoute, first: str) -> None:
    if not session.caller.is_admin:
        raise AdministratorRequired(pages.text("errors", "administrator"))
    if route.role is RequiredRole.OPERATOR and session.caller.account != first:
        raise AdministratorRequired(pages.text("errors", "operator"))


def _query(raw: bytes) -> FormFields:
    try:
        pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=forms.MAX_FIELDS)
    except ValueError:
        raise InvalidRequest.because(PARAMETER_INVALID, "the query has too many fields") from None
    return FormFields(pairs)
