"""Entry by a one-time link, and logout. Only its form uses the link, so that a preview or scanner of links does not."""

from __future__ import annotations

import logging

from starlette.responses import Response

from handset.web import sessions, strings
from handset.web.site import ROOT, HandsetRequest, PageFailure

log = logging.getLogger(__name__)


async def show(page: HandsetRequest) -> Response:
    if not page.site.sessions.is_valid(page.path("token")):
        raise PageFailure(403, strings.NOT_ENTERED)
    return page.render("enter.html", {"token": page.path("token")})


async def enter(page: HandsetRequest) -> Response:
    cookie = page.site.sessions.use(page.path("token"))
    if cookie is None:
        raise PageFailure(403, strings.NOT_ENTERED)
    response = page.redirect("")
    response.set_cookie(
        page.site.cookie(page.request),
        cookie,
        max_age=sessions.LASTS_SECONDS,
        path=page.site.cookie_path,
        secure=page.site.is_secure,
        httponly=True,
        samesite="strict",
    )
    return response


async def log_out(page: HandsetRequest) -> Response:
    """End the session of this browser, also for copies of its cookie, and the event streams of its pages."""
    site = page.site
    try:
        await site.sessions.end(page.session)
    except OSError as error:
        log.warning("session.end_not_stored", extra={"error": repr(error)[:200]})
    site.streams.end(page.session.id)
    response = page.render("logged_out.html", {})
    response.delete_cookie(
        site.cookie(page.request), path=site.cookie_path, secure=site.is_secure, httponly=True, samesite="strict"
    )
    return response


async def make_link(page: HandsetRequest) -> Response:
    """Show a link for another browser."""
    token = page.site.sessions.make_link()
    host = page.request.headers["host"]
    scheme = "https" if page.site.is_secure else "http"
    return page.render("link.html", {"url": f"{scheme}://{host}{ROOT}/enter/{token}"})
