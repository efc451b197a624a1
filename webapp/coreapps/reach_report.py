"""Report of this Webapp on the Coreapps that it does not reach, which all Coreapps read from the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from prometheus_client import Gauge

from tidings.aio import service
from tidings.storage.business import webapp_unreached
from tidings.storage.database import Database
from webapp.coreapps.shard_map import Coreapp

log = logging.getLogger(__name__)

UNREACHED = Gauge(
    "tidings_webapp_coreapps_unreached", "Live Coreapps that this Webapp has not reached for more than a second"
)

# Seconds between two polls of the links, which are in memory.
POLL_SECONDS = 0.25
# Seconds for which a Coreapp must be unreached before it is reported. A restarted Coreapp is back sooner.
LEAST = 1.0
# Maximum number of seconds in the first report of a Coreapp. A Webapp that was itself cut off from everything reports
# late, and has to retry first. Also the seconds after which the first report is made even if a link has been neither
# connected nor unreached for `LEAST` seconds.
MOST = 2.0
# Seconds by which the first failed call must be later for the Coreapp to have been reached before it. Two failures that
# are reported are at least `LEAST` apart.
LATER = 0.5
# Seconds after which an unchanged report is written again, in case its rows were deleted.
REPEAT = 60.0


class ReportedLinks(Protocol):
    """Connections to the Coreapps."""

    def coreapps(self) -> Sequence[Coreapp]: ...

    def unreached(self) -> Mapping[str, float]:
        """Return the seconds since the first failed call, by the address of each live Coreapp that is not reached."""
        ...


class ReachReport:
    """Service that writes the report when it has changed, and once a minute while it is not empty.

    The first report is made once every Coreapp was reached or has been unreached for `LEAST` seconds. Coreapps ignore
    this Webapp until then.
    """

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
        self._is_first = True
        # Loop time of the first poll that found Coreapps; `None` before it.
        self._polled_at: float | None = None
        # Addresses of Coreapps that a poll has found reached.
        self._reached: set[str] = set()
        # Loop time of the first failed call, by address of each row that may be stored.
        self._failed_at: dict[str, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        UNREACHED.set_function(lambda: len(self._unreached()))
        try:
            await self._database.commit(webapp_unreached.delete_dead)
        except Exception as error:
            log.warning("reach.not_deleted", extra={"error": repr(error)[:200]})
        while not await service.wait_for(stop, POLL_SECONDS):
            await self.run_once()
        if self._recorded != frozenset():
            await self._record({})

    async def run_once(self) -> None:
        """Write the report if it differs from the stored rows, or is due to be repeated."""
        failing, now = self._links.unreached(), asyncio.get_running_loop().time()
        self._reached |= {coreapp.address for coreapp in self._links.coreapps()} - failing.keys()
        if self._is_first and not self._is_decided(failing, now):
            return
        failed_at = {address: now - seconds for address, seconds in failing.items() if seconds >= LEAST}
        is_due = bool(self._recorded) and now - self._recorded_at >= REPEAT
        if failed_at.keys() == self._recorded and not self._ended(failed_at) and not is_due:
            return
        await self._record(failed_at)
        self._recorded_at = now

    def _unreached(self) -> Mapping[str, float]:
        return {address: seconds for address, seconds in self._links.unreached().items() if seconds >= LEAST}

    def _is_decided(self, failing: Mapping[str, float], now: float) -> bool:
        """Return whether each Coreapp was reached, or has been unreached for `LEAST` seconds."""
        if self._polled_at is None and self._links.coreapps():
            self._polled_at = now
        if self._polled_at is None:
            return False
        return now - self._polled_at >= MOST or all(seconds >= LEAST for seconds in failing.values())

    def _ended(self, failed_at: Mapping[str, float]) -> frozenset[str]:
        """Return the addresses that were reached after their rows were written, and are unreached again."""
        return frozenset(address for address, at in failed_at.items() if at > self._failed_at.get(address, at) + LATER)

    async def _record(self, failed_at: Mapping[str, float]) -> None:
        """Write the report.

        failed_at: loop time of the first failed call, by address
        """
        now, ended = asyncio.get_running_loop().time(), self._ended(failed_at)
        claimed = {address: min(now - at, MOST) for address, at in failed_at.items()}
        before, self._recorded = self._recorded, None
        # The rows may be stored even if the commit fails.
        self._failed_at = {**failed_at, **self._failed_at}
        try:
            async with self._database.transaction(seconds=1.0) as connection:
                await webapp_unreached.record(
                    connection,
                    self._incarnation,
                    claimed,
                    ended=ended,
                    never_reached=failed_at.keys() - self._reached - ended,
                )
        except Exception as error:
            if not self._has_failed:
                log.warning("reach.not_reported", extra={"error": repr(error)[:200]})
            self._has_failed = True
            return
        self._has_failed = self._is_first = False
        self._recorded, self._failed_at = frozenset(failed_at), dict(failed_at)
        if before != self._recorded and (before or self._recorded):
            log.info("reach.reported", extra={"unreached": ",".join(sorted(failed_at))})
