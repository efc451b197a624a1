"""Wiring of the login components."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from starlette.types import ASGIApp

from webapp.api.users.credentials import Credentials
from webapp.api.users.first_start import FirstStart, OnlyLogin
from webapp.api.users.guessing import Guessing
from webapp.api.users.passwords import Hasher
from webapp.api.users.refusals import Refusals
from webapp.api.users.service import Users
from webapp.auth.tokens import Tokens
from webapp.context import WebappContext


@dataclasses.dataclass(frozen=True, slots=True)
class Logins:
    """Components that users log in through."""

    users: Users
    credentials: Credentials
    guessing: Guessing
    first_start: FirstStart
    only_login: Callable[[ASGIApp], ASGIApp] | None  # middleware; `None` where the default password is safe

    async def start(self) -> str | None:
        """Load the stored state, and create the built-in administrator at the first start of an installation.

        Returns the generated first password; `None` if none was generated.
        """
        await self.credentials.start()
        made = await self.first_start.prepare()
        await self.guessing.poll()
        return made


def wire(context: WebappContext, tokens: Tokens, hasher: Hasher) -> Logins:
    """Create the components without starting them."""
    database, clock, first = context.database, context.clock, context.settings.first_password
    guessing = Guessing(database, clock)
    credentials = Credentials(database, hasher, guessing, clock=clock)
    users = Users(
        database,
        context.numbers,
        tokens=tokens,
        credentials=credentials,
        hasher=hasher,
        refusals=Refusals(clock),
        clock=clock,
    )
    first_start = FirstStart(database, context.settings.account, first, hasher=hasher, clock=clock)
    only_login = None
    if not first.is_default_safe:
        only_login = functools.partial(OnlyLogin, start=first_start, identify=tokens.identify)
    return Logins(users, credentials, guessing, first_start, only_login)
