"""Report of this Webapp on the Coreapps that it does not reach, which all Coreapps read from the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from prometheus_client import Gauge

from tidings.aio import service
from tidings.storage.business import webapp_unreached
from tidings.storage.database import Database

log = logging.getLogger(__name__)

UNREACHED = Gauge(
    "tidings_webapp_coreapps_unreached", "Live Coreapps that this Webapp has not reached for more than a second"
)

# Seconds between two polls of the links, which are in memory.
PULSE = 0.25
# Seconds for which a Coreapp must be unreached before it is reported. A restarted Coreapp is back sooner.
LEAST = 1.0
# Maximum number of seconds in the first report of a Coreapp. A Webapp that was itself cut off from everything reports
# late, and has to retry first.
MOST = 2.0
# Seconds after which an unchanged report is written again, in case its rows were deleted.
REPEAT = 60.0


class ReportedLinks(Protocol):
    """Connections to the Coreapps."""

    def unreached(self) -> Mapping[str, float]:
        """Return the seconds since the first failed call, by the address of each live Coreapp that is not reached."""
        ...


class ReachReport:
    """Service that writes the report when it has changed, and once a minute while it is not empty."""

    name = "reach-report"

    def __init__(self, database: Database, links: ReportedLinks, incarnation: str) -> None:
        """Create the service.

        incarnation: id of this Webapp's process, as in `webapp_nodes`
        """
        self._database = database
        self._links = links
        self._incarnation = incarnation
        # Addresses in the stored rows; `None` while unknown, as at the start.
        self._recorded: frozenset[str] | None = None
        self._recorded_at = 0.0
        self._has_failed = False

    async def run(self, stop: asyncio.Event) -> None:
        UNREACHED.set_function(lambda: len(self._unreached()))
        try:
            await self._database.commit(webapp_unreached.forget_dead)
        except Exception as error:
            log.warning("reach.not_forgotten", extra={"error": repr(error)[:200]})
        while not await service.wait_for(stop, PULSE):
            await self.run_once()
        if self._recorded != frozenset():
            await self._record({})

    async def run_once(self) -> None:
        """Write the report if it differs from the stored rows, or is due to be repeated."""
        unreached, now = self._unreached(), asyncio.get_running_loop().time()
        is_due = bool(self._recorded) and now - self._recorded_at >= REPEAT
        if frozenset(unreached) == self._recorded and not is_due:
            return
        await self._record(unreached)
        self._recorded_at = now

    def _unreached(self) -> Mapping[str, float]:
        return {address: seconds for address, seconds in self._links.unreached().items() if seconds >= LEAST}

    async def _record(self, unreached: Mapping[str, float]) -> None:
        claimed = {address: min(seconds, MOST) for address, seconds in unreached.items()}
        before, self._recorded = self._recorded, None
        try:
            async with self._database.transaction(seconds=1.0) as connection:
                await webapp_unreached.record(connection, self._incarnation, claimed)
        except Exception as error:
            if not self._has_failed:
                log.warning("reach.not_reported", extra={"error": repr(error)[:200]})
            self._has_failed = True
            return
        self._has_failed = False
        self._recorded = frozenset(unreached)
        if before != self._recorded and (before or self._recorded):
            log.info("reach.reported", extra={"unreached": ",".join(sorted(unreached))})
