"""Wires what logs users in."""

from __future__ import annotations

import dataclasses

from tidings.runtime.clock import Clock
from tidings.storage.database import Database
from webapp.tokens import Tokens
from webapp.users.credentials import Credentials
from webapp.users.guessing import Guessing
from webapp.users.passwords import Hasher
from webapp.users.refusals import Refusals
from webapp.users.service import Users
from webapp.users.upkeep import LoginUpkeep


@dataclasses.dataclass(frozen=True, slots=True)
class Logins:
    """Everything that logs users in."""

    users: Users
    credentials: Credentials
    guessing: Guessing
    upkeep: LoginUpkeep

    async def start(self) -> None:
        """Read what there is, and make the built-in administrator at the first start of an installation."""
        await self.credentials.start()
        await self.users.ensure_administrator()
        await self.guessing.poll()


def wire(database: Database, account: str, *, tokens: Tokens, hasher: Hasher, clock: Clock) -> Logins:
    """Not started."""
    guessing = Guessing(database, clock)
    credentials = Credentials(database, hasher, guessing, clock=clock)
    users = Users(
        database,
        account,
        tokens=tokens,
        credentials=credentials,
        hasher=hasher,
        refusals=Refusals(clock),
        clock=clock,
    )
    return Logins(users, credentials, guessing, LoginUpkeep(guessing, clock))
