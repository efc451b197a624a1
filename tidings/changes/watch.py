"""Poll of the database by which a process detects changes made by other processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tidings.aio import service
from tidings.storage.business import changes
from tidings.storage.database import Connection, Database

log = logging.getLogger(__name__)

# Time between two polls, seconds. A change is then effective in all processes within one second.
INTERVAL = 0.5
# Maximum duration of the reads of a poll, seconds.
TIMEOUT = 2.0

Refresh = Callable[[], Awaitable[object]]
PollHook = Callable[[Connection], Awaitable[None]]


class Watch:
    """Service that polls the versions of cached subjects and refreshes those whose version has changed.

    A refresh that fails is repeated at the next poll.
    """

    name = "watch"

    def __init__(self, database: Database) -> None:
        self._database = database
        self._refreshes: list[tuple[str, Refresh]] = []
        self._hooks: list[PollHook] = []
        # Position in `_refreshes` -> version for which the refresh last succeeded.
        self._known: dict[int, int] = {}
        self._problem = ""

    def on(self, subject: str, refresh: Refresh) -> None:
        """Register `refresh`, which is called when the version of `subject` has changed, and once at the first poll."""
        self._refreshes.append((subject, refresh))

    def on_poll(self, hook: PollHook) -> None:
        """Register `hook`, which is called with the connection of each poll. It may execute one short statement."""
        self._hooks.append(hook)

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
        """Poll once. Raises the database's errors, or the first error of a refresh once all have been tried."""
        async with self._database.reading(seconds=TIMEOUT) as connection:
            versions = await changes.list_versions(connection)
            for hook in self._hooks:
                await hook(connection)
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
