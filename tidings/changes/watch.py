"""The one look at the database by which a process notices what others changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tidings.runtime import service
from tidings.storage.business import changes
from tidings.storage.database import Connection, Database

log = logging.getLogger(__name__)

# Seconds between two looks: with what follows from it a change is in force everywhere within a second.
INTERVAL = 0.5
# Seconds that a look may take.
PATIENCE = 2.0

Refresh = Callable[[], Awaitable[object]]
Look = Callable[[Connection], Awaitable[None]]


class Watch:
    """Reads the versions of what is kept in memory, and has read again what has another one. A service.

    What cannot be read is tried again at the next look.
    """

    name = "watch"

    def __init__(self, database: Database) -> None:
        self._database = database
        self._refreshes: list[tuple[str, Refresh]] = []
        self._looks: list[Look] = []
        # By the position of its refresh: the version that was read.
        self._known: dict[int, int] = {}
        self._problem = ""

    def on(self, subject: str, refresh: Refresh) -> None:
        """Have `refresh` called when the subject has changed, and once at the first look."""
        self._refreshes.append((subject, refresh))

    def look(self, look: Look) -> None:
        """Have `look` called with the connection of each look, for what has no version: one short statement."""
        self._looks.append(look)

    async def run(self, stop: asyncio.Event) -> None:
        while not await service.wait_for(stop, INTERVAL):
            try:
                await self.run_once()
            except Exception as error:
                if not self._problem:
                    log.warning("changes.not_read", extra={"error": repr(error)[:200]})
                self._problem = repr(error)
            else:
                self._problem = ""

    async def run_once(self) -> None:
        """Look. Raises the database's errors, and the first of a refresh when all have been tried."""
        async with self._database.reading(seconds=PATIENCE) as connection:
            versions = await changes.list_versions(connection)
            for look in self._looks:
                await look(connection)
        failed: Exception | None = None
        for position, (subject, refresh) in enumerate(self._refreshes):
            version = versions.get(subject, 0)
            if self._known.get(position) == version:
                continue
            try:
                await refresh()
            except Exception as error:
                failed = failed or error
            else:
                self._known[position] = version
        if failed is not None:
            raise failed
