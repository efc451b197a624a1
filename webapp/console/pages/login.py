"""Login, first password, the one-time link, and logout."""

from __future__ import annotations

from urllib.parse import urlsplit

from tidings.http.limited_protocol import consume, mark_authenticated
from tidings.secrets.first_password import ADMINISTRATOR
from tidings.storage.business import users
from webapp.api.users.service import Users
from webapp.auth.authenticator import LOGIN, address_of
from webapp.auth.tokens import mark_of
from webapp.console.access import sessions
from webapp.console.access.entry_link import EntryLink
from webapp.console.access.sessions import SessionCookies
from webapp.console.page_request import PageRequest, Result, redirect
from webapp.console.render import pages
from webapp.console.render.pages import PageContent
from webapp.http.errors import AdministratorRequired, APIError, PasswordChangeRequired, Unauthenticated
from webapp.http.responses import error_response

HOME, LOGIN_PATH, FIRST_PASSWORD = "/console", "/console/login", "/console/first-password"
_MAX_NAME, _MAX_PASSWORD = 128, 512


async def show(page: PageRequest) -> Result:
    """Show the form. A user with a session is sent to the overview."""
    if page.session is not None:
        return redirect(HOME)
    return _form(page)


async def log_in(page: PageRequest) -> Result:
    """Check name and password, and start a session."""
    _require_safe(page)
    name, password = page.form.text("username"), page.form.raw("password")
    if not name or not password or len(name) > _MAX_NAME or len(password) > _MAX_PASSWORD:
        return _form(page, pages.text("login", "missing"), status=400)
    service, address = page.part(Users), address_of(page.request)
    consume(page.request.scope, LOGIN)
    try:
        user = await service.check(name, password, address, page.request.scope)
        if user.role != users.ADMIN:
            return _form(page, pages.text("errors", "administrator"), status=403)
        issued = await service.log_in(user, password, None, address, lifetime=int(sessions.TOTAL))
    except PasswordChangeRequired:
        response = redirect(FIRST_PASSWORD)
        page.part(SessionCookies).grant(page.request, response, user.username, mark_of(user))
        return response
    except APIError as error:
        status = error_response(error).status_code
        is_wrong = isinstance(error, Unauthenticated)
        return _form(page, pages.text("login", "wrong") if is_wrong else error.problems[0].details, status=status)
    mark_authenticated(page.request.scope)
    response = redirect(_target(page.form.text("next")))
    page.part(SessionCookies).start(page.request, response, issued.token)
    return response


async def show_entry(page: PageRequest) -> Result:
    """Show the form of the one-time link. Only the form uses the link, so that a preview of links does not."""
    _require_safe(page)
    key = page.query.text("key")
    if not page.part(EntryLink).is_valid(key):
        return _form(page, pages.text("login", "used"), status=403)
    return PageContent("enter.html", {"key": key})


async def enter(page: PageRequest) -> Result:
    """Start a session of the first number's administrator by the one-time link."""
    _require_safe(page)
    link, key = page.part(EntryLink), page.form.text("key")
    if not link.is_valid(key):
        return _form(page, pages.text("login", "used"), status=403)
    service, cookies = page.part(Users), page.part(SessionCookies)
    try:
        issued = await service.log_in_without_password(ADMINISTRATOR, lifetime=int(sessions.TOTAL))
    except PasswordChangeRequired:
        user = await service.find_any(ADMINISTRATOR)
        response = redirect(FIRST_PASSWORD)
        cookies.grant(page.request, response, user.username, mark_of(user))
    else:
        response = redirect(HOME)
        cookies.start(page.request, response, issued.token)
    # The link stays valid after a failure. Another request may have used it since.
    return response if link.use(key) else _form(page, pages.text("login", "used"), status=403)


async def show_first_password(page: PageRequest) -> Result:
    """Show the form for the first password to a client that gave the present one or used the link."""
    if page.part(SessionCookies).granted(page.request) is None:
        return redirect(LOGIN_PATH)
    return PageContent("first_password.html", {"problem": ""})


async def set_first_password(page: PageRequest) -> Result:
    """Set the first password, and start a session."""
    _require_safe(page)
    cookies = page.part(SessionCookies)
    granted = cookies.granted(page.request)
    if granted is None:
        return redirect(LOGIN_PATH)
    password = page.form.raw("new_password")
    if password != page.form.raw("repeated"):
        return PageContent("first_password.html", {"problem": pages.text("first_password", "differ")}, 400)
    try:
        issued = await page.part(Users).log_in_without_password(
            granted.username, granted.mark, password, lifetime=int(sessions.TOTAL)
        )
    except Unauthenticated:
        return redirect(LOGIN_PATH)
    except APIError as error:
        status = error_response(error).status_code
        return PageContent("first_password.html", {"problem": error.problems[0].details}, status)
    response = redirect(HOME)
    cookies.end(page.request, response)
    cookies.start(page.request, response, issued.token)
    return response


async def log_out(page: PageRequest) -> Result:
    """End the session and its token."""
    await page.part(Users).log_out(page.caller)
    response = redirect(LOGIN_PATH)
    page.part(SessionCookies).end(page.request, response)
    return response


def _form(page: PageRequest, problem: str = "", *, status: int = 200) -> PageContent:
    target = page.query.text("next") or page.form.text("next")
    values = {
        "problem": problem,
        "username": page.form.text("username")[:_MAX_NAME],
        "next": target if target and _target(target) == target else "",
        "is_open": sessions.may_log_in(page.request),
    }
    return PageContent("login.html", values, status)


def _require_safe(page: PageRequest) -> None:
    if not sessions.may_log_in(page.request):
        raise AdministratorRequired(pages.text("login", "plain"))


def _target(destination: str) -> str:
    """Return the page to show after the login: the requested one if it is one of the console's."""
    try:
        parts = urlsplit(destination)
    except ValueError:
        return HOME
    is_ours = not parts.scheme and not parts.netloc and (parts.path == HOME or parts.path.startswith(f"{HOME}/"))
    return destination if is_ours and "\\" not in destination and destination.isprintable() else HOME
