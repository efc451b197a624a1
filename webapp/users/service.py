"""Logging in and out, and the built-in administrator."""

from __future__ import annotations

import dataclasses
import logging

from prometheus_client import Counter

from tidings.runtime.clock import Clock
from tidings.storage import users
from tidings.storage.database import Database
from tidings.storage.users import User
from webapp.errors import PARAMETER_INVALID, APIError, ChangePassword, FixRequest, LogIn
from webapp.tokens import Caller, Tokens
from webapp.users import passwords
from webapp.users.credentials import Credentials
from webapp.users.passwords import Hasher

log = logging.getLogger(__name__)

DEFAULT_USER, DEFAULT_PASSWORD = "admin", "secret"

LOGINS = Counter("tidings_logins_total", "Calls of login", ["result"])


@dataclasses.dataclass(frozen=True, slots=True)
class IssuedToken:
    """expires_at: Unix seconds."""

    token: str
    expires_at: int


class Users:
    """The users of one account."""

    def __init__(
        self, database: Database, account: str, tokens: Tokens, credentials: Credentials, hasher: Hasher, clock: Clock
    ) -> None:
        self._database = database
        self._account = account
        self._tokens = tokens
        self._credentials = credentials
        self._hasher = hasher
        self._clock = clock

    async def ensure_administrator(self) -> None:
        """Make the built-in administrator at the first start of an installation."""
        async with self._database.reading() as connection:
            if await users.find_user(connection, DEFAULT_USER) is not None:
                return
        user = User(
            username=DEFAULT_USER,
            account=self._account,
            role=users.ADMIN,
            password_hash=await self._hasher.hash(DEFAULT_PASSWORD),
            must_change_password=True,
            created_at=int(self._clock.now() * 1000),
        )
        await self._database.persist(lambda connection: users.add_user_if_missing(connection, user))
        log.info("user.created", extra={"username": DEFAULT_USER, "role": users.ADMIN})

    async def log_in(self, username: str, password: str, new_password: str | None, address: str) -> IssuedToken:
        """A token for the right password, which `new_password` replaces if given.

        Raises `LogIn`, `ChangePassword`, `FixRequest` for a weak new password, `SlowDown`, `TryLater`.
        """
        try:
            user = await self._credentials.check(username, password, address)
            if new_password is not None:
                user = await self._change_password(user, new_password)
            elif user.must_change_password:
                raise ChangePassword
        except APIError as error:
            LOGINS.labels(_RESULTS.get(type(error), "refused")).inc()
            log.info("user.login_refused", extra={"username": username[:64], "address": address, "reason": str(error)})
            raise
        LOGINS.labels("ok").inc()
        return IssuedToken(*self._tokens.issue(user))

    async def log_out(self, caller: Caller) -> None:
        """End the caller's token; the user's other tokens stay."""
        await self._tokens.revoke(caller)

    async def _change_password(self, user: User, new_password: str) -> User:
        weakness = passwords.weakness(new_password)
        if weakness:
            raise FixRequest.because(PARAMETER_INVALID, f"new_password: {weakness}")
        new_hash = await self._hasher.hash(new_password)
        async with self._database.transaction() as connection:
            changed = await users.change_password(connection, user, new_hash)
        self._credentials.forget(user.username)
        if not changed:
            raise LogIn("the password was changed at the same time", scheme="Basic")
        log.info("user.password_changed", extra={"username": user.username})
        return dataclasses.replace(user, password_hash=new_hash, must_change_password=False)


_RESULTS: dict[type[APIError], str] = {LogIn: "wrong", ChangePassword: "change_required"}
