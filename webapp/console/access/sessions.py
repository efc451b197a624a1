"""Sessions of the console, kept in signed cookies, so that every Webapp of an installation accepts them.

A session holds a token of the v1 API and ends with it. The signature adds the time of the last use.
"""

from __future__ import annotations

import dataclasses
import hmac
import re
import secrets
from urllib.parse import urlsplit

from fastapi import Request, Response

from tidings.aio.clock import Clock
from tidings.config import env
from webapp.auth.authenticator import Authenticator, address_of
from webapp.auth.tokens import Caller
from webapp.http import headers
from webapp.http.errors import NumberPaused, Unauthenticated

# Seconds without a request after which a session ends, and seconds after which it ends in any case.
IDLE, TOTAL = 30 * 60.0, 12 * 3600.0
# Seconds after which a session's time of last use is written again.
REFRESH = 60.0
# Seconds in which the first password must be changed after a login or the use of the one-time link.
GRANT = 600.0
# Bytes. A longer cookie was not made here.
_MAX_COOKIE = 2_048

SESSION, FORM, GRANTED = "session", "form", "first"
# Headers that proxies add, besides `X-Forwarded-…`.
_PROXIED = frozenset((b"forwarded", b"via", b"x-real-ip"))
_TEXT = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]+")


@dataclasses.dataclass(frozen=True, slots=True)
class ConsoleSession:
    """Session of one logged-in user."""

    caller: Caller
    token: str
    seen_at: float  # Unix seconds of the last recorded use

    @property
    def ends_at(self) -> float:
        """Return the Unix time at which the session ends without further use."""
        return min(self.seen_at + IDLE, self.caller.issued_at + TOTAL, self.caller.expires_at)


@dataclasses.dataclass(frozen=True, slots=True)
class FirstPasswordGrant:
    """Permission to set the first password, for a client that gave it or used the one-time link."""

    username: str
    mark: str  # mark of the user's tokens, which changes with the password
    expires_at: float  # Unix seconds


class SessionCookies:
    """Writes and reads the cookies of the console."""

    def __init__(self, key: str, authenticator: Authenticator, clock: Clock) -> None:
        """key: key that signs tokens of the API; cookies are signed by a key derived from it"""
        self._key = hmac.digest(key.encode(), b"tidings console v1", "sha256")
        self._authenticator = authenticator
        self._clock = clock

    async def find(self, request: Request) -> ConsoleSession | None:
        """Return the session of a request; `None` when there is none or it has ended."""
        parts = self._open(request, SESSION)
        if parts is None or len(parts) != 2 or not parts[0].isdigit():
            return None
        seen_at, token = float(parts[0]), parts[1]
        try:
            caller = await self._authenticator.identify(request, token.encode())
        except (Unauthenticated, NumberPaused):
            return None
        session = ConsoleSession(caller, token, seen_at)
        return session if self._clock.now() < session.ends_at else None

    def start(self, request: Request, response: Response, token: str) -> None:
        """Start a session with a token that was just issued."""
        self._set(request, response, SESSION, str(int(self._clock.now())), token)

    def refresh(self, request: Request, response: Response, session: ConsoleSession) -> None:
        """Record the use of a session, at most once per `REFRESH` seconds."""
        if self._clock.now() - session.seen_at >= REFRESH:
            self.start(request, response, session.token)

    def end(self, request: Request, response: Response) -> None:
        """Delete the cookies of a session."""
        for purpose in (SESSION, GRANTED):
            response.headers.append("Set-Cookie", f"{_name(request, purpose)}=; Max-Age=0; {_attributes(request)}")

    def grant(self, request: Request, response: Response, username: str, mark: str) -> None:
        """Let a client set the first password of a user."""
        self._set(request, response, GRANTED, str(int(self._clock.now() + GRANT)), mark, username.encode().hex())

    def granted(self, request: Request) -> FirstPasswordGrant | None:
        """Return the permission of a request to set the first password; `None` without one."""
        parts = self._open(request, GRANTED)
        if parts is None or len(parts) != 3 or not parts[0].isdigit():
            return None
        try:
            found = FirstPasswordGrant(bytes.fromhex(parts[2]).decode(), parts[1], float(parts[0]))
        except ValueError:
            return None
        return found if self._clock.now() < found.expires_at else None

    def form_token(self, request: Request, response: Response | None, session: ConsoleSession | None) -> str:
        """Return the token that each form of a response has.

        Without a session it belongs to a random cookie, which is added to `response` unless the request has one.
        """
        if session is not None:
            return self._mac("csrf", session.caller.jti)
        parts = self._open(request, FORM)
        nonce = parts[0] if parts else secrets.token_urlsafe(16)
        if not parts and response is not None:
            self._set(request, response, FORM, nonce)
        return self._mac("login", nonce)

    def is_form_token(self, request: Request, session: ConsoleSession | None, given: str) -> bool:
        """Return whether a form was sent with the token of this session, or of this browser without a session."""
        if session is None and self._open(request, FORM) is None:
            return False
        return hmac.compare_digest(given.encode(), self.form_token(request, None, session).encode())

    def _mac(self, *parts: str) -> str:
        return hmac.digest(self._key, "\0".join(parts).encode(), "sha256").hex()

    def _set(self, request: Request, response: Response, purpose: str, *parts: str) -> None:
        value = "~".join((*parts, self._mac(purpose, *parts)))
        response.headers.append("Set-Cookie", f"{_name(request, purpose)}={value}; {_attributes(request)}")

    def _open(self, request: Request, purpose: str) -> list[str] | None:
        value = request.cookies.get(_name(request, purpose), "")
        if not value or len(value) > _MAX_COOKIE or not _TEXT.fullmatch(value):
            return None
        *parts, mac = value.split("~")
        return parts if hmac.compare_digest(mac, self._mac(purpose, *parts)) else None


def is_secure(request: Request) -> bool:
    """Return whether a request came over TLS."""
    return bool(request.scope.get("scheme") == "https")


def may_log_in(request: Request) -> bool:
    """Return whether a password may be typed: over TLS, or over plain HTTP from this machine to a loopback name.

    A proxy on this machine forwards requests of others, which have its headers.
    """
    if is_secure(request):
        return True
    if any(name in _PROXIED or name.startswith(b"x-forwarded-") for name, _ in request.scope["headers"]):
        return False
    try:
        host = urlsplit(f"//{(headers.find(request.scope, b'host') or b'').decode('latin-1')}").hostname or ""
    except ValueError:
        return False
    return env.is_loopback(address_of(request)) and env.is_loopback(host)


def _name(request: Request, purpose: str) -> str:
    """Return the name of a cookie. On loopback it has the port, because cookies of all ports are sent to each."""
    if is_secure(request):
        return f"__Host-tidings-console-{purpose}"
    port = (request.scope.get("server") or ("", 0))[1]
    return f"tidings-console-{port or 0}-{purpose}"


def _attributes(request: Request) -> str:
    # Browsers accept the prefix `__Host-` only with this path.
    where = "Path=/; Secure" if is_secure(request) else "Path=/console"
    return f"{where}; HttpOnly; SameSite=Strict"
