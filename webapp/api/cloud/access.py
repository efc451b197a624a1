"""Access tokens of the Cloud API: any token of v1, in a header or a parameter."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import Request

from tidings.config.env import is_loopback
from tidings.storage.business import users
from webapp.api.cloud import errors
from webapp.api.cloud.calls import FORM_READ, is_form, read_form
from webapp.auth.authenticator import Authenticator, authorization
from webapp.auth.tokens import Caller
from webapp.http import bodies, dependencies, headers
from webapp.http.errors import Unauthenticated

TOKEN = "access_token"  # noqa: S105
MAX_FORM = 64 * 1024  # bytes of a form that is read for its token before the caller is known
_SCHEMES = (b"bearer ", b"oauth ")
OPEN_USER = "cloud-open"


class CloudAccess:
    """Check of access tokens.

    With `open_account` any non-empty token is accepted: it acts as an administrator of that account. The setting exists
    for listeners on loopback only. Web pages are kept out: a request must address a loopback host and have no `Origin`.
    """

    def __init__(self, open_account: str = "") -> None:
        """open_account: account of unknown tokens; empty to refuse them"""
        self._open_account = open_account

    async def caller(self, request: Request) -> Caller:
        """Return the caller of a request. Raises `GraphError` without a token, and `Unauthenticated`."""
        token = _token_of(authorization(request)) or await self._parameter(request)
        if not token:
            raise errors.token_required()
        try:
            return await dependencies.find(request, Authenticator).identify(request, token)
        except Unauthenticated:
            if not self._open_account or not is_from_this_machine(request):
                raise
        return Caller(OPEN_USER, self._open_account, users.ADMIN, "", "", 0)

    async def _parameter(self, request: Request) -> bytes:
        """Return the token in the query or in a form; empty without one."""
        raw = request.scope["query_string"]
        found = read_form(raw).get(TOKEN) if TOKEN.encode() in raw else None
        if found is None and request.scope["method"] == "POST" and is_form(request):
            raw = request.scope["state"][FORM_READ] = await bodies.receive(request, MAX_FORM)
            found = read_form(raw).get(TOKEN)
        return found.encode() if isinstance(found, str) else b""


def _token_of(header: bytes) -> bytes:
    """Return the token in an `Authorization` header; empty without one."""
    for scheme in _SCHEMES:
        if header[: len(scheme)].lower() == scheme:
            return header[len(scheme) :].strip()
    return b""


def is_from_this_machine(request: Request) -> bool:
    """Return whether a request addresses a loopback host and comes from no web page."""
    host = (headers.find(request.scope, b"host") or b"").decode("latin-1")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return is_loopback(name) and headers.find(request.scope, b"origin") is None
