"""Tokens of the API: signed, valid for seven days, revoked through the database."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import secrets
from typing import Any

import jwt
from prometheus_client import Counter

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU
from tidings.storage.business import tokens, users
from tidings.storage.business.users import User
from tidings.storage.database import Database
from webapp.http.errors import TokenExpired, Unauthenticated

log = logging.getLogger(__name__)

LIFETIME = 7 * 24 * 3600  # seconds
_ALGORITHM = "HS256"

# Maximum difference between the clocks of two Webapps, in milliseconds, for which a poll misses no revocation.
_OVERLAP = 30_000
# Seconds after which a token that is cached as valid is checked against the database again.
_CACHED_SECONDS = 300.0
_GOOD_LIMIT = 10_000
# Above this number of revocations within `_CACHED_SECONDS` seconds, one may be overlooked for up to that time.
_REVOKED_LIMIT = 100_000
# Expired revocations that one pass deletes, and seconds between two passes.
_SWEEP, _SWEEP_INTERVAL = 1_000, 600.0

REVOKED = Counter("tidings_tokens_revoked_total", "Tokens revoked, here or by another Webapp")


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """User that a token was issued to."""

    username: str
    account: str
    role: str
    jti: str  # id of the token
    mark: str  # mark of the user's tokens, see `mark_of`
    expires_at: int  # Unix seconds
    lifetime: int = LIFETIME  # seconds from its issue to its expiry

    @property
    def is_admin(self) -> bool:
        return self.role == users.ADMIN

    @property
    def issued_at(self) -> int:
        """Return the time of the login by password that the token comes from, Unix seconds."""
        return self.expires_at - self.lifetime


def mark_of(user: User) -> str:
    """Return the mark that all tokens of a user have since all earlier ones were revoked, if they ever were.

    No other token has this mark, including those of earlier or later users of the same name.
    """
    ended = f" {user.generation}" if user.generation else ""
    return "user-" + hashlib.sha256(f"{user.created_at} {user.username}{ended}".encode()).hexdigest()[:27]


class Tokens:
    """Issues and identifies tokens. The `_GOOD_LIMIT` most recent valid tokens are cached."""

    def __init__(self, database: Database, key: str, clock: Clock) -> None:
        self._database = database
        self._key = key
        self._clock = clock
        # Token, mapped to its caller and the Unix time in seconds until which the entry is valid.
        self._good: LRU[bytes, tuple[Caller, float]] = LRU(_GOOD_LIMIT)
        self._revoked: LRU[str, bool] = LRU(_REVOKED_LIMIT)
        self._polled_at = self._clock.now_ms()

    def issue(self, user: User, lifetime: int = LIFETIME) -> tuple[str, int]:
        """Issue a token. Returns it with the time of its expiry, Unix seconds.

        lifetime: seconds; revocations of all tokens of a user outlast it, because they raise the user's generation
        """
        now, jti = int(self._clock.now()), secrets.token_hex(16)
        caller = Caller(user.username, user.account, user.role, jti, mark_of(user), now + lifetime, lifetime)
        claims: dict[str, str | int] = {
            "user": caller.username,
            "iat": now,
            "exp": caller.expires_at,
            "jti": caller.jti,
            "mark": caller.mark,
            "account": caller.account,
        }
        if lifetime != LIFETIME:
            claims["lifetime"] = lifetime
        token = jwt.encode(claims, self._key, _ALGORITHM)
        self._remember(token.encode(), caller)
        return token, caller.expires_at

    async def identify(self, token: bytes) -> Caller:
        """Return the caller that a token belongs to. Raises `Unauthenticated` when it is wrong, expired or revoked."""
        return self.find(token) or await self._look_up(token)

    def find(self, token: bytes) -> Caller | None:
        """Return the caller that a cached token belongs to; `None` for other tokens."""
        known = self._good.get(token)
        if known is not None and self._clock.now() < known[1]:
            caller, revoked = known[0], self._revoked
            if caller.jti not in revoked and caller.mark not in revoked:
                return caller
        return None

    def recognises(self, token: bytes) -> bool:
        """Return whether a token was valid when it was last used here, and has neither expired nor been revoked since.

        Unlike `find`, it needs no recent check against the database.
        """
        known = self._good.get(token)
        if known is None:
            return False
        caller = known[0]
        is_revoked = caller.jti in self._revoked or caller.mark in self._revoked
        return not is_revoked and self._clock.now() < caller.expires_at

    async def revoke(self, caller: Caller) -> None:
        """Revoke a token: in this process at once, in other Webapps within a second."""
        revocation = tokens.Revocation(caller.jti, caller.expires_at * 1000, self._clock.now_ms())
        await self._database.persist(lambda connection: tokens.revoke(connection, revocation), retry_seconds=5.0)
        self._learn(caller.jti)

    def revocation_of(self, user: User) -> tokens.Revocation:
        """Return a revocation of all tokens of a user's present generation.

        Once it is stored, other Webapps apply it within a second.
        """
        now = self._clock.now_ms()
        return tokens.Revocation(mark_of(user), now + LIFETIME * 1000, now)

    def learn(self, revocation: tokens.Revocation) -> None:
        """Apply a stored revocation to this process at once."""
        self._learn(revocation.jti)

    async def poll(self) -> int:
        """Read revocations by other Webapps. Returns the number of new ones."""
        started = self._clock.now_ms()
        async with self._database.reading() as connection:
            revoked = await tokens.list_revoked_since(connection, self._polled_at - _OVERLAP)
        self._polled_at = started
        new = sum(self._learn(revocation.jti) for revocation in revoked)
        if new:
            log.info("revocations.learnt", extra={"revocations": new})
        return new

    async def sweep(self) -> int:
        """Delete revocations of tokens that have expired since. Returns the number of deleted rows."""
        now = self._clock.now_ms()
        return await self._database.persist(
            lambda connection: tokens.delete_expired(connection, now, limit=_SWEEP), retry_seconds=5.0
        )

    async def _look_up(self, token: bytes) -> Caller:
        claims = self._claims(token)
        jti, expires_at = claims["jti"], claims["exp"]
        now = self._clock.now()
        if now >= expires_at:
            raise TokenExpired(expires_at, now)
        async with self._database.reading() as connection:
            user = await users.find_user(connection, claims["user"])
            revoked = user is None or await tokens.is_revoked(connection, [jti, mark_of(user)])
        # Another user may have the name now, or all tokens of the user were revoked. Older tokens of the first
        # generation have no mark.
        if user is None or revoked or claims.get("mark", mark_of(_first(user))) != mark_of(user):
            raise Unauthenticated("the token was revoked")
        lifetime = claims.get("lifetime", LIFETIME)
        caller = Caller(user.username, claims["account"], user.role, jti, mark_of(user), expires_at, lifetime)
        self._remember(token, caller)
        return caller

    def _claims(self, token: bytes) -> dict[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key,
                [_ALGORITHM],
                # Expiry is checked against this process's clock.
                options={"verify_exp": False, "verify_iat": False, "require": ["user", "exp", "jti", "account"]},
            )
        except (jwt.InvalidTokenError, ValueError):
            raise Unauthenticated("the token is not valid") from None
        return claims

    def _remember(self, token: bytes, caller: Caller) -> None:
        self._good.put(token, (caller, min(float(caller.expires_at), self._clock.now() + _CACHED_SECONDS)))

    def _learn(self, jti: str) -> bool:
        new = jti not in self._revoked
        self._revoked.put(jti, True)
        REVOKED.inc(new)
        return new


def _first(user: User) -> User:
    return dataclasses.replace(user, generation=0)


class RevocationMaintenance:
    """Maintenance task that deletes expired revocations."""

    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock
        self._next_sweep = clock.monotonic()

    async def run_once(self) -> None:
        if self._clock.monotonic() >= self._next_sweep:
            deleted = await self._tokens.sweep()
            # A full pass means that more rows are left.
            self._next_sweep = self._clock.monotonic() + (0 if deleted == _SWEEP else _SWEEP_INTERVAL)
