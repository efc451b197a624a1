"""Access tokens of the Cloud API: any token of v1, in a header or a parameter."""

from __future__ import annotations

import dataclasses
from urllib.parse import urlsplit

from fastapi import Request

from tidings.config.env import is_loopback
from tidings.http.limited_protocol import mark_authenticated
from tidings.storage.business import users
from tidings.wire.cloud.identity import IdentityDirectory
from webapp.api.cloud import errors, upload_sessions
from webapp.api.cloud.calls import FORM_READ, is_form, read_form
from webapp.api.cloud.paths import UPLOAD
from webapp.auth.authenticator import Authenticator, authorization
from webapp.auth.numbers import Numbers
from webapp.auth.tokens import Caller
from webapp.http import bodies, dependencies, headers
from webapp.http.errors import Unauthenticated

TOKEN = "access_token"  # noqa: S105
MAX_FORM = 64 * 1024  # bytes of a form that is read for its token before the caller is known
_SCHEMES = (b"bearer ", b"oauth ")
OPEN_USER = "cloud-open"


@dataclasses.dataclass(frozen=True, slots=True)
class OpenAccess:
    """Access with any non-empty token, which acts as an administrator of the number that the call is about.

    The setting exists for listeners on loopback only. Web pages are kept out: a request must address a loopback host
    and have no `Origin`.
    """

    directory: IdentityDirectory
    numbers: Numbers
    first: str  # number of calls that name none

    async def caller(self, request: Request, node: str) -> Caller:
        """Return the caller of a request with an unknown token. Raises `NumberPaused`.

        The number is that of the host, else that of the object, else the first one.
        """
        named = upload_sessions.number_of(node.removeprefix(UPLOAD)) if node.startswith(UPLOAD) else node
        account = self.numbers.at_host(request.scope) or self.directory.owner(named) or self.first
        # Otherwise the server would rate-limit this client like those without a token.
        mark_authenticated(request.scope)
        await self.numbers.admit(account, request.scope)
        return Caller(OPEN_USER, account, users.ADMIN, "", "", 0)


class CloudAccess:
    """Check of access tokens."""

    def __init__(self, open_access: OpenAccess | None = None) -> None:
        """open_access: access with unknown tokens; `None` to refuse them"""
        self._open = open_access

    async def caller(self, request: Request, node: str) -> Caller:
        """Return the caller of a request.

        Raises `GraphError` without a token, `Unauthenticated`, and `NumberPaused`.

        node: id or name of the object that the call is about
        """
        token = _token_of(authorization(request)) or await self._parameter(request)
        if not token:
            raise errors.token_required()
        try:
            return await dependencies.find(request, Authenticator).identify(request, token)
        except Unauthenticated:
            if self._open is None or not is_from_this_machine(request):
                raise
        return await self._open.caller(request, node)

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
