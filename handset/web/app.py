"""ASGI application of the pages: checks host, session and forms, and serves the pages."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope, Send

from handset import errors
from handset.user_input import InvalidInput
from handset.web import conversation, entry, files, live, numbers, sessions, settings_page, strings
from handset.web.sessions import PageSession
from handset.web.site import NO_SESSION, ROOT, Handler, HandsetRequest, PageFailure, Site, sentence
from tidings.client.errors import ClientError, NetworkUnavailable
from tidings.config.env import is_loopback
from tidings.http.hosts import Hosts
from tidings.media import kinds
from tidings.pages import headers
from tidings.storage import outages
from tidings.storage.database import DatabaseError

log = logging.getLogger(__name__)

MAX_BODY = 1024 * 1024  # bytes of a form
MAX_UPLOAD = kinds.MAX_SIZE + MAX_BODY  # bytes of a form with a file
MAX_FIELDS = 100

_CHAT = "/{number:str}/chats/{chat:str}"
# Path below `/handset`, method, handler, and whether it needs a session.
_PAGES: tuple[tuple[str, str, Handler, bool], ...] = (
    ("", "GET", numbers.show, True),
    ("/enter/{token:str}", "GET", entry.show, False),
    ("/enter/{token:str}", "POST", entry.enter, False),
    ("/link", "POST", entry.make_link, True),
    ("/logout", "POST", entry.log_out, True),
    ("/static/{name:str}", "GET", files.asset, False),
    ("/register", "POST", numbers.register, True),
    ("/{number:str}", "GET", conversation.show_phone, True),
    ("/{number:str}/list", "GET", conversation.show_list, True),
    ("/{number:str}/events", "GET", live.stream, True),
    ("/{number:str}/files/{position:int}/{index:int}", "GET", files.received, True),
    ("/{number:str}/again", "POST", numbers.register_again, True),
    ("/{number:str}/close", "POST", numbers.close, True),
    ("/{number:str}/settings", "GET", settings_page.show, True),
    ("/{number:str}/settings", "POST", settings_page.save, True),
    ("/{number:str}/move", "POST", settings_page.change_number, True),
    ("/{number:str}/new", "GET", conversation.show_new, True),
    ("/{number:str}/new", "POST", conversation.start, True),
    (_CHAT, "GET", conversation.show, True),
    (_CHAT + "/messages", "GET", conversation.show_messages, True),
    (_CHAT + "/more", "GET", conversation.show_more, True),
    (_CHAT + "/send", "POST", conversation.send, True),
    (_CHAT + "/act", "POST", conversation.act, True),
    (_CHAT + "/read", "POST", conversation.read, True),
    (_CHAT + "/info", "GET", conversation.show_info, True),
    (_CHAT + "/info", "POST", conversation.change, True),
    (_CHAT + "/form/{position:int}/{index:int}", "GET", conversation.show_form, True),
    (_CHAT + "/form/{position:int}/{index:int}", "POST", conversation.send_form, True),
    (_CHAT + "/forward/{position:int}", "GET", conversation.show_forward, True),
    (_CHAT + "/forward/{position:int}", "POST", conversation.forward, True),
)


@dataclasses.dataclass(eq=False, repr=False)
class HandsetApp:
    """ASGI application."""

    site: Site
    hosts: Hosts  # names in addition to those of this machine

    def __post_init__(self) -> None:
        self._routes = [
            (Route(ROOT + path, _unused, methods=[method]), handler, needs_session)
            for path, method, handler, needs_session in _PAGES
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limited = _LimitedBody(receive, MAX_BODY)
        request = Request(scope, limited)
        session = self._session(request)
        is_file = request.headers.get("content-type", "").startswith("multipart/form-data")
        if session is not None and is_file and scope["path"].endswith("/send"):
            limited.allow(MAX_UPLOAD)
        nonce, position = headers.make_nonce(), self.site.streams.mark
        page = HandsetRequest(self.site, request, session or NO_SESSION, nonce, position, FormData())
        try:
            response = await self._respond(page)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _respond(self, page: HandsetRequest) -> Response:
        try:
            return await self._serve(page)
        except PageFailure as failure:
            return _problem(page, failure.status, str(failure))
        except _TooLarge:
            response = _problem(page, 413, strings.TOO_LARGE)
            response.headers["Connection"] = "close"
            return response
        except (MultiPartException, HTTPException):
            return _problem(page, 400, strings.NOT_CSRF)
        except errors.UnknownPhone as error:
            return _problem(page, 404, sentence(error))
        except InvalidInput as error:
            return _problem(page, 422, sentence(error))
        except ClientError as error:
            return _problem(page, 422, sentence(error))
        except OSError as error:
            log.warning("page.file_refused", extra={"error": repr(error)[:200]})
            return _problem(page, 503, strings.DISK)

    async def _serve(self, page: HandsetRequest) -> Response:
        request = page.request
        client = request.client
        is_local = client is not None and is_loopback(client.host)
        target = request.scope.get("raw_path") or b"/"
        if self.hosts.host_error(request.scope["headers"], target, is_local=is_local):
            raise PageFailure(421, strings.WRONG_HOST)
        if request.url.path in ("/", ROOT + "/"):
            return page.redirect("")
        handler, needs_session = self._find(request)
        if needs_session and page.session is NO_SESSION:
            raise PageFailure(403, strings.NOT_ENTERED)
        if request.method != "POST":
            return await _handle(handler, page)
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise PageFailure(403, strings.NOT_CSRF)
        async with request.form(max_files=1, max_fields=MAX_FIELDS) as form:
            page = dataclasses.replace(page, form=form)
            if needs_session and not sessions.is_token(page.session, page.field("csrf")):
                raise PageFailure(403, strings.NOT_CSRF)
            return await _handle(handler, page)

    def _find(self, request: Request) -> tuple[Handler, bool]:
        """Return the handler of a request, and whether it needs a session. Raises `PageFailure`."""
        is_partial = False
        scope = {**request.scope, "method": "GET" if request.method == "HEAD" else request.method}
        for route, handler, needs_session in self._routes:
            try:
                match, child = route.matches(scope)
            except ValueError:
                # A number of more digits than Python converts.
                continue
            if match is Match.FULL:
                request.scope["path_params"] = child["path_params"]
                return handler, needs_session
            is_partial = is_partial or match is Match.PARTIAL
        raise PageFailure(405 if is_partial else 404, strings.NOT_FOUND)

    def _session(self, request: Request) -> PageSession | None:
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(request.headers.get("cookie", ""))
        except CookieError:
            return None
        found = cookies.get(self.site.cookie(request))
        return self.site.sessions.find(found.value) if found is not None else None


class _TooLarge(Exception):
    """The body is larger than the page takes."""


class _LimitedBody:
    """`receive` that counts the body. Raises `_TooLarge`."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._left = limit

    def allow(self, limit: int) -> None:
        """Set another limit, before the body is read."""
        self._left = limit

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _TooLarge
        return message


async def _unused(request: Request) -> Response:
    raise NotImplementedError("routes only match paths here")


async def _handle(handler: Handler, page: HandsetRequest) -> Response:
    """Call a handler.

    While the network or the store is unreachable, the page keeps the form and offers to send it again.
    """
    try:
        return await handler(page)
    except NetworkUnavailable as error:
        text = f"{strings.AWAY} ({error})"
    except Exception as error:
        if not (isinstance(error, errors.NotStored | DatabaseError) or outages.is_outage(error)):
            raise
        log.warning("page.store_away", extra={"error": outages.brief(error)})
        text = strings.STORE_AWAY
    kept = [(name, value) for name, value in page.form.multi_items() if isinstance(value, str) and name != "csrf"]
    url = page.request.url
    response = _problem(page, 503, text, again=f"{url.path}?{url.query}" if url.query else url.path, kept=kept)
    response.headers["Retry-After"] = str(live.POLL_SECONDS)
    return response


def _problem(
    page: HandsetRequest, status: int, text: str, *, again: str = "", kept: Sequence[tuple[str, str]] = ()
) -> Response:
    """Return a page with the problem.

    again: URL of a request that may succeed later; empty for others
    kept: its fields, without files
    """
    is_inside, is_form = page.session is not NO_SESSION, page.request.method == "POST"
    values = {"text": text, "is_inside": is_inside, "is_form": is_form, "again": again, "kept": kept}
    return page.render("problem.html", values, status)
