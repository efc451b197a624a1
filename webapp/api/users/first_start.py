"""First start of an installation: creation of the built-in administrator with a secret first password."""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import logging
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from tidings.aio import service
from tidings.aio.clock import Clock
from tidings.secrets import first_password
from tidings.secrets.first_password import FirstPassword
from tidings.storage.business import users
from tidings.storage.business.users import User
from tidings.storage.database import Database
from webapp.api.users.passwords import Hasher
from webapp.http import headers
from webapp.http.errors import PasswordChangeRequired

log = logging.getLogger(__name__)

# Seconds between two polls for a change of the first password through another Webapp.
POLL = 1.0
LOGIN = "/v1/users/login"
# Paths that are served before the first password is changed.
OPEN = frozenset({LOGIN, "/health/live", "/health/ready"})


class FirstStart:
    """Service that creates the administrator and then waits until its first password is changed."""

    name = "first-start"

    def __init__(self, database: Database, account: str, first: FirstPassword, *, hasher: Hasher, clock: Clock) -> None:
        self._database = database
        self._account = account
        self._first = first
        self._hasher = hasher
        self._clock = clock
        # True until the first password is changed, if clients on other machines can reach the API.
        self.is_pending = False

    async def prepare(self) -> str | None:
        """Create the administrator if there is none.

        Returns a generated password to be shown once; `None` if none was generated.

        While the first password is unchanged, a password from the environment replaces it, and the default
        password is replaced where it is not safe. If several Webapps start together, one of them generates the
        password.
        """
        made = None
        administrator = await self._find()
        if administrator is None:
            made = await self._add()
            administrator = await self._find()
        if made is None and administrator is not None and administrator.must_change_password:
            made = await self._replace(administrator)
        self.is_pending = not self._first.is_default_safe and await self._must_change()
        return made

    async def run(self, stop: asyncio.Event) -> None:
        while self.is_pending and not await service.wait_for(stop, POLL):
            try:
                await self.run_once()
            except Exception as error:
                log.warning("first_start.not_read", extra={"error": repr(error)[:200]})
        await stop.wait()

    async def run_once(self) -> None:
        """Poll for a change of the first password."""
        self.is_pending = self.is_pending and await self._must_change()

    async def _add(self) -> str | None:
        made = "" if self._first.given or self._first.is_default_safe else first_password.make()
        user = User(
            username=first_password.ADMINISTRATOR,
            account=self._account,
            role=users.ADMIN,
            password_hash=await self._hasher.hash(self._first.given or made or first_password.DEFAULT),
            must_change_password=True,
            created_at=self._clock.now_ms(),
        )
        await self._database.persist(lambda connection: users.add_user_if_missing(connection, user))
        return await self._if_kept(user, made)

    async def _replace(self, administrator: User) -> str | None:
        stored, made = administrator.password_hash, ""
        if self._first.given:
            if await self._hasher.verify(stored, self._first.given):
                return None
        elif self._first.is_default_safe or not await self._hasher.verify(stored, first_password.DEFAULT):
            return None
        else:
            made = first_password.make()
        successor = dataclasses.replace(
            administrator,
            password_hash=await self._hasher.hash(self._first.given or made),
            generation=administrator.generation + 1,
        )
        await self._database.commit(lambda connection: users.replace(connection, administrator, successor))
        return await self._if_kept(successor, made)

    async def _if_kept(self, user: User, made: str) -> str | None:
        """Return the generated password if its hash is the stored one, and not another Webapp's."""
        stored = await self._find()
        if stored is None or not hmac.compare_digest(stored.password_hash, user.password_hash):
            return None
        log.info("user.created", extra={"username": user.username, "role": user.role})
        return made or None

    async def _must_change(self) -> bool:
        administrator = await self._find()
        return administrator is not None and administrator.must_change_password

    async def _find(self) -> User | None:
        async with self._database.reading() as connection:
            return await users.find_user(connection, first_password.ADMINISTRATOR)


class OnlyLogin:
    """Middleware that serves only the paths in `OPEN` while the first password is unchanged.

    A request with a valid token passes: no token was issued before the change, so another Webapp has already seen
    it.
    """

    def __init__(self, app: ASGIApp, start: FirstStart, identify: Callable[[bytes], Awaitable[object]]) -> None:
        """Create the middleware.

        identify: raises an error unless it gets a valid token
        """
        self._app = app
        self._start = start
        self._identify = identify

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._start.is_pending and scope["type"] == "http" and scope["path"] not in OPEN:
            authorization = headers.find(scope, b"authorization") or b""
            if authorization[:7].lower() != b"bearer ":
                raise PasswordChangeRequired
            await self._identify(authorization[7:].strip())
        await self._app(scope, receive, send)
