"""The tokens of the API: signed, good for seven days, revoked through the database."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import secrets
from typing import Any

import jwt
from prometheus_client import Counter

from tidings.runtime.clock import Clock
from tidings.runtime.lru import LRU
from tidings.storage.business import tokens, users
from tidings.storage.business.users import User
from tidings.storage.database import Database
from webapp.errors import Unauthenticated

log = logging.getLogger(__name__)

LIFETIME = 7 * 24 * 3600  # seconds
_ALGORITHM = "HS256"

# How far the clocks of two Webapps may be apart, in milliseconds, for that look to miss nothing.
_OVERLAP = 30_000
# Seconds after which a token that is known to be good is checked against the database again.
_BELIEVED = 300.0
_GOOD_LIMIT = 10_000
# At that many revocations within `_BELIEVED` seconds, one may be overlooked until they are over.
_REVOKED_LIMIT = 100_000
# Expired revocations that one pass deletes, and seconds between two passes.
_SWEEP, _SWEEP_INTERVAL = 1_000, 600.0

REVOKED = Counter("tidings_tokens_revoked_total", "Tokens revoked, here or by another Webapp")


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """Whom a token speaks for. mark: of its user's tokens, see `mark_of`; expires_at: Unix seconds."""

    username: str
    account: str
    role: str
    jti: str
    mark: str
    expires_at: int

    @property
    def is_admin(self) -> bool:
        return self.role == users.ADMIN

    @property
    def issued_at(self) -> int:
        """Unix seconds of the login by password that the token comes from."""
        return self.expires_at - LIFETIME


def mark_of(user: User) -> str:
    """A mark that all tokens of a user share that were issued since they were all ended, if they ever were.

    No other token has it, those of another user who had or will have the same name included.
    """
    ended = f" {user.generation}" if user.generation else ""
    return "user-" + hashlib.sha256(f"{user.created_at} {user.username}{ended}".encode()).hexdigest()[:27]


class Tokens:
    """Issues and identifies tokens. Those that were good are remembered, the `_GOOD_LIMIT` latest."""

    def __init__(self, database: Database, key: str, clock: Clock) -> None:
        self._database = database
        self._key = key
        self._clock = clock
        # Token to its caller and the Unix time until which that is believed.
        self._good: LRU[bytes, tuple[Caller, float]] = LRU(_GOOD_LIMIT)
        self._revoked: LRU[str, bool] = LRU(_REVOKED_LIMIT)
        self._polled_at = self._milliseconds()

    def issue(self, user: User) -> tuple[str, int]:
        """A new token and the Unix second of its end."""
        now = int(self._clock.now())
        caller = Caller(user.username, user.account, user.role, secrets.token_hex(16), mark_of(user), now + LIFETIME)
        claims = {
            "user": caller.username,
            "iat": now,
            "exp": caller.expires_at,
            "jti": caller.jti,
            "mark": caller.mark,
            "account": caller.account,
        }
        token = jwt.encode(claims, self._key, _ALGORITHM)
        self._remember(token.encode(), caller)
        return token, caller.expires_at

    async def identify(self, token: bytes) -> Caller:
        """The caller that a token belongs to. Raises `Unauthenticated` when it is wrong, expired or revoked."""
        return self.find(token) or await self._look_up(token)

    def find(self, token: bytes) -> Caller | None:
        """The same for a token that is in memory, `None` for another."""
        known = self._good.get(token)
        if known is not None and self._clock.now() < known[1]:
            caller, revoked = known[0], self._revoked
            if caller.jti not in revoked and caller.mark not in revoked:
                return caller
        return None

    async def revoke(self, caller: Caller) -> None:
        """End a token: here at once, in other Webapps within a second."""
        revocation = tokens.Revocation(caller.jti, caller.expires_at * 1000, self._milliseconds())
        await self._database.persist(lambda connection: tokens.revoke(connection, revocation), patience=5.0)
        self._learn(caller.jti)

    def revocation_of(self, user: User) -> tokens.Revocation:
        """A revocation that ends every token of a user of this generation once it is stored: in other Webapps within
        a second."""
        now = self._milliseconds()
        return tokens.Revocation(mark_of(user), now + LIFETIME * 1000, now)

    def learn(self, revocation: tokens.Revocation) -> None:
        """Apply a revocation that is stored here at once."""
        self._learn(revocation.jti)

    async def poll(self) -> int:
        """Learn what other Webapps revoked; returns how many tokens are new."""
        started = self._milliseconds()
        async with self._database.reading() as connection:
            revoked = await tokens.list_revoked_since(connection, self._polled_at - _OVERLAP)
        self._polled_at = started
        new = sum(self._learn(revocation.jti) for revocation in revoked)
        if new:
            log.info("revocations.learnt", extra={"revocations": new})
        return new

    async def sweep(self) -> int:
        """Delete revocations of tokens that have expired by themselves; returns how many."""
        now = self._milliseconds()
        return await self._database.persist(
            lambda connection: tokens.delete_expired(connection, now, limit=_SWEEP), patience=5.0
        )

    async def _look_up(self, token: bytes) -> Caller:
        claims = self._claims(token)
        jti, expires_at = claims["jti"], claims["exp"]
        if self._clock.now() >= expires_at:
            raise Unauthenticated("the token has expired")
        async with self._database.reading() as connection:
            user = await users.find_user(connection, claims["user"])
            revoked = user is None or await tokens.is_revoked(connection, [jti, mark_of(user)])
        # Another user may have the name by now, or the user's tokens were all ended. Those of the first generation had
        # no mark once.
        if user is None or revoked or claims.get("mark", mark_of(_first(user))) != mark_of(user):
            raise Unauthenticated("the token was revoked")
        caller = Caller(user.username, claims["account"], user.role, jti, mark_of(user), expires_at)
        self._remember(token, caller)
        return caller

    def _claims(self, token: bytes) -> dict[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key,
                [_ALGORITHM],
                # Expiry is judged by our own clock.
                options={"verify_exp": False, "verify_iat": False, "require": ["user", "exp", "jti", "account"]},
            )
        except (jwt.InvalidTokenError, ValueError):
            raise Unauthenticated("the token is not one of ours") from None
        return claims

    def _remember(self, token: bytes, caller: Caller) -> None:
        self._good.put(token, (caller, min(float(caller.expires_at), self._clock.now() + _BELIEVED)))

    def _learn(self, jti: str) -> bool:
        new = jti not in self._revoked
        self._revoked.put(jti, True)
        REVOKED.inc(new)
        return new

    def _milliseconds(self) -> int:
        return int(self._clock.now() * 1000)


def _first(user: User) -> User:
    return dataclasses.replace(user, generation=0)


class RevocationUpkeep:
    """Keeps the table of revocations short."""

    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock
        self._next_sweep = clock.monotonic()

    async def run_once(self) -> None:
        if self._clock.monotonic() >= self._next_sweep:
            deleted = await self._tokens.sweep()
            # A full pass leaves more to do.
            self._next_sweep = self._clock.monotonic() + (0 if deleted == _SWEEP else _SWEEP_INTERVAL)
