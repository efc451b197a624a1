"""Entry to the pages: one-time links, and sessions in signed cookies until they expire or are ended."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import hmac
import re
import secrets
from pathlib import Path

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU
from tidings.secrets import private_files

LASTS_SECONDS = 12 * 3600
MAX_LINKS = 16  # one-time links that are not used; the oldest become invalid
MAX_ENDED = 1000  # ended sessions that are remembered; at the limit, sessions older than all of them are invalid, too
_FUTURE_SECONDS = 60  # seconds by which another process's clock may have been ahead
_ID = re.compile(r"([0-9]{1,12})\.[A-Za-z0-9_-]{16}")  # Unix seconds of the entry, and random characters


@dataclasses.dataclass(frozen=True, slots=True)
class PageSession:
    """Session of a browser."""

    id: str
    csrf: str = dataclasses.field(repr=False)  # token that each of its forms has


class EndedSessions:
    """Sessions that were ended before they expire. A file keeps their ids across restarts."""

    def __init__(self, path: Path) -> None:
        """Read the file, if there is one. Raises `OSError`."""
        self._path = path
        self._writing = asyncio.Lock()
        # Unix seconds of the entry, by id of the session.
        self._entered: dict[str, int] = {}
        try:
            lines = path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        for found in filter(None, map(_ID.fullmatch, lines)):
            self._entered[found[0]] = int(found[1])

    def has(self, session_id: str, entered: int) -> bool:
        """Return whether a session was ended, or may have been among those that are no longer remembered."""
        if session_id in self._entered:
            return True
        return len(self._entered) >= MAX_ENDED and entered <= min(self._entered.values())

    async def add(self, session_id: str, entered: int, now: float) -> None:
        """Remember a session, and forget those that have expired. Raises `OSError`, after which it is in memory only.

        entered, now: Unix seconds
        """
        self._entered[session_id] = entered
        kept = sorted(
            (each for each in self._entered.items() if now - each[1] < LASTS_SECONDS), key=lambda each: each[1]
        )
        self._entered = dict(kept[-MAX_ENDED:])
        async with self._writing:
            lines = "".join(f"{each}\n" for each in self._entered)
            await asyncio.to_thread(private_files.replace, self._path, lines.encode())


class PageSessions:
    """Sessions of one data directory. They survive a restart, because a cookie proves itself by its signature."""

    def __init__(self, key: bytes, clock: Clock, ended: EndedSessions) -> None:
        """key: secret of the data directory"""
        self._key = hmac.digest(key, b"tidings handset page", "sha256")
        self._clock = clock
        self._ended = ended
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
        entered = _entered(name)
        if not -_FUTURE_SECONDS <= self._clock.now() - entered < LASTS_SECONDS or self._ended.has(name, entered):
            return None
        return PageSession(name, self._sign("csrf", name))

    async def end(self, session: PageSession) -> None:
        """End a session, whose cookie is invalid from now on. Raises `OSError` if that does not outlast a restart."""
        await self._ended.add(session.id, _entered(session.id), self._clock.now())

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.digest(self._key, f"{purpose} {text}".encode(), "sha256").hex()


def is_token(session: PageSession, given: str) -> bool:
    """Return whether a form's token is the session's."""
    return given.isascii() and hmac.compare_digest(given, session.csrf)


def _entered(session_id: str) -> int:
    return int(session_id.partition(".")[0])


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
