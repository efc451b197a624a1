"""Login, logout, and administration of users."""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import logging
from collections.abc import Iterator, Sequence

from prometheus_client import Counter
from starlette.types import Scope

from tidings.aio.clock import Clock
from tidings.secrets.first_password import ADMINISTRATOR
from tidings.storage.business import login_origins, users
from tidings.storage.business.tokens import revoke
from tidings.storage.business.users import User
from tidings.storage.database import Connection, Database
from tidings.wire.codes import NOT_FOUND, PARAMETER_INVALID, PARAMETER_MISSING
from webapp.api.users.credentials import Credentials
from webapp.api.users.passwords import Hasher
from webapp.api.users.refusals import Refusals
from webapp.auth import password_rule
from webapp.auth.numbers import Numbers
from webapp.auth.tokens import LIFETIME, Caller, Tokens, mark_of
from webapp.http.errors import (
    AdministratorRequired,
    APIError,
    InvalidRequest,
    NameTaken,
    Overloaded,
    PasswordChangeRequired,
    Unauthenticated,
    WrongPassword,
)

log = logging.getLogger(__name__)

# Seconds after a login in which its token suffices to change the user's own password, because clients that rotate
# passwords log in and then set the new one.
RECENT_LOGIN = 600
# Attempts to change a user that is being changed by other requests.
_TRIES = 5

LOGINS = Counter("tidings_logins_total", "Calls of login", ["result"])


@dataclasses.dataclass(frozen=True, slots=True)
class IssuedToken:
    """Token with its expiry."""

    token: str
    expires_at: int  # Unix seconds


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Users:
    """Users of each number. Names in requests are those within the caller's number."""

    database: Database
    numbers: Numbers
    _: dataclasses.KW_ONLY
    tokens: Tokens
    credentials: Credentials
    hasher: Hasher
    refusals: Refusals
    clock: Clock

    async def check(self, name: str, password: str, address: str, scope: Scope) -> User:
        """Return the user with this password, whose number is not paused.

        Raises `Unauthenticated`, `RateLimitExceeded`, `Overloaded` and `NumberPaused`.

        name: login name, or at a host that stands for a number the name within that number
        """
        username, only = self.numbers.login_of(name, scope)
        with self._refusing(username, address):
            user = await self.credentials.check(username, password, address)
            if only and user.account != only:
                raise Unauthenticated("wrong user name or password", scheme="Basic")
            await self.numbers.admit(user.account, scope)
            return user

    async def log_in(
        self, user: User, password: str, new_password: str | None, address: str, *, lifetime: int = LIFETIME
    ) -> IssuedToken:
        """Issue a token to a user that `check` returned for `password`, and set `new_password` if it differs.

        Raises `PasswordChangeRequired`, `InvalidRequest` for a weak new password, `Unauthenticated` and
        `Overloaded`.

        lifetime: seconds until the token expires
        """
        with self._refusing(user.username, address):
            # Some clients send the present password as the new one with every login.
            is_change = new_password is not None and not hmac.compare_digest(new_password.encode(), password.encode())
            if new_password is not None and (is_change or user.must_change_password):
                _check_password("new_password", new_password)
                if not is_change:
                    raise InvalidRequest.because(PARAMETER_INVALID, "new_password: must differ from the first password")
                user = await self._change_password(user, new_password)
            elif user.must_change_password:
                raise PasswordChangeRequired
        LOGINS.labels("ok").inc()
        return IssuedToken(*self.tokens.issue(user, lifetime))

    async def find_any(self, username: str) -> User:
        """Return the user with this login name. Raises `Unauthenticated` when there is none."""
        async with self.database.reading() as connection:
            user = await users.find_user(connection, username)
        if user is None:
            raise Unauthenticated("there is no such user")
        return user

    async def log_in_without_password(
        self, username: str, mark: str = "", new_password: str | None = None, *, lifetime: int = LIFETIME
    ) -> IssuedToken:
        """Issue a token to a client that has otherwise proved to be this user, and set the first password if one is
        due.

        Raises `PasswordChangeRequired` while a first password is due and none is given, `InvalidRequest` for a weak
        one, `Unauthenticated` when the user has changed, and `Overloaded`.

        mark: mark of the tokens that the user had when the client proved it; empty for just now
        lifetime: seconds until the token expires
        """
        user = await self.find_any(username)
        if mark and mark_of(user) != mark:
            raise Unauthenticated("the user has changed: log in again")
        if user.must_change_password:
            if new_password is None:
                raise PasswordChangeRequired
            _check_password("new_password", new_password)
            if await self.hasher.verify(user.password_hash, new_password):
                raise InvalidRequest.because(PARAMETER_INVALID, "new_password: must differ from the first password")
            user = await self._change_password(user, new_password)
        LOGINS.labels("ok").inc()
        return IssuedToken(*self.tokens.issue(user, lifetime))

    @contextlib.contextmanager
    def _refusing(self, username: str, address: str) -> Iterator[None]:
        """Count and log a login that is refused in this context."""
        try:
            yield
        except APIError as error:
            LOGINS.labels(_RESULTS.get(type(error), "refused")).inc()
            known = username if self.credentials.is_known(username) else None
            self.refusals.note(known, address, str(error))
            raise

    async def log_out(self, caller: Caller) -> None:
        """Revoke the caller's token. The user's other tokens stay valid."""
        await self.tokens.revoke(caller)

    async def end_tokens(self, caller: Caller, username: str) -> None:
        """Revoke all tokens of a user: in this process at once, in other Webapps within a second.

        Raises `AdministratorRequired` and `InvalidRequest`.
        """
        await self._replace_any(caller, username)
        log.info("user.tokens_ended", extra={"username": username, "by": caller.username})

    async def list(self, caller: Caller) -> Sequence[User]:
        """Return all users of the caller's account. Raises `AdministratorRequired`."""
        if not caller.is_admin:
            raise AdministratorRequired("only an administrator may list all users")
        async with self.database.reading() as connection:
            return await users.list_users(connection, caller.account)

    async def get(self, caller: Caller, username: str) -> User:
        """Return a user.

        Ordinary users may read only themselves. Raises `AdministratorRequired` and `InvalidRequest`.
        """
        self._check_access(caller, username)
        async with self.database.reading() as connection:
            user = await users.find_user(connection, self._login(caller, username))
        if user is None or user.account != caller.account:
            raise _unknown(username)
        return user

    async def create(self, caller: Caller, username: str, password: str) -> None:
        """Create an ordinary user. Raises `InvalidRequest` for a weak password, `NameTaken` and `Overloaded`."""
        _check_password("password", password)
        login = self._login(caller, username)
        if login == username and self.numbers.is_qualified(username):
            # It would look like a login name of another number.
            raise NameTaken
        user = User(
            username=login,
            account=caller.account,
            role=users.USER,
            password_hash=await self.hasher.hash(password),
            must_change_password=False,
            created_at=self.clock.now_ms(),
            name=username if login != username else None,
        )
        added = await self.database.commit(lambda connection: users.add_user(connection, user))
        if not added:
            raise NameTaken
        self.credentials.learn(user, password)
        log.info("user.created", extra={"username": login, "role": user.role, "by": caller.username})

    async def set_password(
        self, caller: Caller, username: str, password: str, *, old_password: str | None, address: str
    ) -> None:
        """Set a new password and revoke all tokens of the user.

        Users who change their own password must give the old one, unless the caller's token comes from a login in
        the last 10 minutes.

        Raises `AdministratorRequired`, `InvalidRequest`, `WrongPassword`, `RateLimitExceeded` and `Overloaded`.
        """
        user = await self.get(caller, username)
        _check_password("password", password)
        if user.username == caller.username:
            if old_password is not None or not self._logged_in_recently(caller):
                user = await self._check_old_password(user.username, old_password, address)
            changed = await self._replace(user, await self.hasher.hash(password))
            if changed is None:
                raise WrongPassword("password: was changed at the same time")
        else:
            changed = await self._replace_any(caller, username, await self.hasher.hash(password))
        self.credentials.learn(changed, password)
        log.info("user.password_changed", extra={"username": changed.username, "by": caller.username})

    async def delete(self, caller: Caller, username: str) -> None:
        """Delete a user and revoke its tokens: in this process at once, in other Webapps within a second.

        Raises `InvalidRequest`, and `AdministratorRequired` for the built-in administrator, which cannot be
        deleted.
        """
        user = await self.get(caller, username)
        if username == ADMINISTRATOR:
            raise AdministratorRequired(f"the user {ADMINISTRATOR} cannot be deleted")
        revocation = self.tokens.revocation_of(user)

        async def work(connection: Connection) -> bool:
            deleted = await users.delete_user(connection, user)
            if deleted:
                await revoke(connection, revocation)
                await login_origins.delete_of(connection, user.username)
            return deleted

        deleted = await self.database.commit(work)
        if not deleted:
            raise _unknown(username)
        self.tokens.learn(revocation)
        self.credentials.evict(user.username)
        log.info("user.deleted", extra={"username": user.username, "by": caller.username})

    def _login(self, caller: Caller, name: str) -> str:
        """Return the login name of a user of the caller's number."""
        return self.numbers.login_name(caller.account, name)

    def _check_access(self, caller: Caller, name: str) -> None:
        if not caller.is_admin and caller.username != self._login(caller, name):
            raise AdministratorRequired("only an administrator may do this for another user")

    def _logged_in_recently(self, caller: Caller) -> bool:
        return self.clock.now() - caller.issued_at < RECENT_LOGIN

    async def _check_old_password(self, username: str, old_password: str | None, address: str) -> User:
        if old_password is None:
            details = "old_password: is missing; give it, or log in again and repeat this within 10 minutes"
            raise InvalidRequest.because(PARAMETER_MISSING, details)
        try:
            return await self.credentials.check(username, old_password, address)
        except Unauthenticated:
            raise WrongPassword("old_password: is wrong") from None

    async def _change_password(self, user: User, new_password: str) -> User:
        changed = await self._replace(user, await self.hasher.hash(new_password))
        if changed is None:
            raise Unauthenticated("the password was changed at the same time", scheme="Basic")
        self.credentials.learn(changed, new_password)
        log.info("user.password_changed", extra={"username": user.username})
        return changed

    async def _replace_any(self, caller: Caller, username: str, password_hash: str = "") -> User:
        """Replace a user in its present state, as `_replace` does. Of concurrent changes the last one wins."""
        for _ in range(_TRIES):
            changed = await self._replace(await self.get(caller, username), password_hash)
            if changed is not None:
                return changed
        raise Overloaded("the user is being changed by another request")

    async def _replace(self, user: User, password_hash: str = "") -> User | None:
        """Revoke all tokens of a user, and set another password hash if one is given.

        Returns the changed user; `None` when the user was changed since it was read.
        """
        successor = dataclasses.replace(user, generation=user.generation + 1)
        if password_hash:
            successor = dataclasses.replace(successor, password_hash=password_hash, must_change_password=False)
        revocation = self.tokens.revocation_of(user)

        async def work(connection: Connection) -> bool:
            replaced = await users.replace(connection, user, successor)
            if replaced:
                await revoke(connection, revocation)
            return replaced

        replaced = await self.database.commit(work)
        self.credentials.evict(user.username)
        if not replaced:
            return None
        self.tokens.learn(revocation)
        return successor


def _check_password(field: str, password: str) -> None:
    weakness = password_rule.weakness(password)
    if weakness:
        raise InvalidRequest.because(PARAMETER_INVALID, f"{field}: {weakness}")


def _unknown(username: str) -> InvalidRequest:
    return InvalidRequest.because(NOT_FOUND, f"there is no user {username[:64]!r}")


_RESULTS: dict[type[APIError], str] = {Unauthenticated: "wrong", PasswordChangeRequired: "change_required"}
