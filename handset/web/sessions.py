"""Entry to the pages: one-time links, and sessions in signed cookies."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import secrets

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU

LASTS_SECONDS = 12 * 3600
MAX_LINKS = 16  # one-time links that are not used; the oldest become invalid
_FUTURE_SECONDS = 60  # seconds by which another process's clock may have been ahead


@dataclasses.dataclass(frozen=True, slots=True)
class PageSession:
    """Session of a browser."""

    id: str
    csrf: str = dataclasses.field(repr=False)  # token that each of its forms has


class PageSessions:
    """Sessions of one data directory. They survive a restart, because a cookie proves itself by its signature."""

    def __init__(self, key: bytes, clock: Clock) -> None:
        """key: secret of the data directory"""
        self._key = hmac.digest(key, b"tidings handset page", "sha256")
        self._clock = clock
        self._links: LRU[bytes, float] = LRU(MAX_LINKS)

    def make_link(self) -> str:
        """Return the token of a new one-time link, which is valid for 12 hours."""
        token = secrets.token_urlsafe(24)
        self._links.put(_hash(token), self._clock.monotonic() + LASTS_SECONDS)
        return token

    def is_valid(self, token: str) -> bool:
        """Return whether a link with this token can be used."""
        until = self._links.get(_hash(token))
        return until is not None and self._clock.monotonic() < until

    def use(self, token: str) -> str | None:
        """Use a link. Returns the value of the new session's cookie; `None` when the link is unknown or was used."""
        if not self.is_valid(token):
            return None
        self._links.pop(_hash(token))
        name = f"{int(self._clock.now())}.{secrets.token_urlsafe(12)}"
        return f"{name}.{self._sign('session', name)}"

    def find(self, cookie: str) -> PageSession | None:
        """Return the session of a cookie's value; `None` when it is invalid or has ended."""
        if len(cookie) > 200 or not cookie.isascii():
            return None
        name, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature, self._sign("session", name)):
            return None
        began = int(name.partition(".")[0])
        if not -_FUTURE_SECONDS <= self._clock.now() - began < LASTS_SECONDS:
            return None
        return PageSession(name, self._sign("csrf", name))

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.digest(self._key, f"{purpose} {text}".encode(), "sha256").hex()


def is_token(session: PageSession, given: str) -> bool:
    """Return whether a form's token is the session's."""
    return given.isascii() and hmac.compare_digest(given, session.csrf)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
