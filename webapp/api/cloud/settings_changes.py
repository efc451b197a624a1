"""Changes of settings that Coreapps cache."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from tidings.storage.business import changes
from tidings.storage.database import Connection, Database
from tidings.wire import core
from webapp.coreapps.interfaces import AllCoreapps
from webapp.http.errors import CoreappUnavailable

log = logging.getLogger(__name__)

_TIMEOUT = 5.0  # seconds for which a call waits for each Coreapp to apply the change


class SettingsChanges:
    """Commits changes of numbers' settings and notifies the Coreapps.

    A change is in force in every Coreapp that responds within 5 seconds. The others read it within seconds.
    """

    def __init__(self, database: Database, coreapps: AllCoreapps) -> None:
        self._database = database
        self._coreapps = coreapps

    async def commit(
        self, accounts: Collection[str], work: Callable[[Connection], Awaitable[None]], subject: str = changes.SETTINGS
    ) -> None:
        """Commit work that may be repeated, as `Database.persist` does, and have the Coreapps read the settings.

        accounts: numbers whose settings the work changes
        subject: cached data that the work changes
        """

        async def noted(connection: Connection) -> None:
            await work(connection)
            await changes.note(connection, subject)

        await self._database.persist(noted, retry_seconds=5.0)
        missed = sum(await asyncio.gather(*map(self._apply, accounts)))
        if missed:
            log.warning("cloud.coreapps_away", extra={"count": missed})

    async def _apply(self, account: str) -> int:
        """Have the Coreapps read the settings of a number. Returns the number of those that do not respond."""
        responses = await self._coreapps.of(account).call_all(
            lambda n: core.SettingsChanged(n=n, account=account), core.Done, timeout=_TIMEOUT
        )
        return sum(isinstance(response, CoreappUnavailable) for response in responses)
