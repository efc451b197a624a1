"""Metrics of the Coreapps, and counts of database rows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from prometheus_client import Metric

from tidings.aio.clock import Clock
from tidings.storage.business import contacts, messages
from tidings.storage.business.messages import Status
from tidings.storage.database import Database
from tidings.wire import core
from webapp.api.stats import known
from webapp.coreapps.interfaces import AllCoreapps, Coreapps
from webapp.http.errors import CoreappUnavailable

# Seconds that each Coreapp has to respond.
_TIMEOUT = 5.0
# Seconds for which counts of the database are cached, because counting reads whole tables.
CACHED_SECONDS = 15.0


class Stats:
    """Counters of the Coreapps and of the database."""

    def __init__(self, database: Database, coreapps: AllCoreapps, clock: Clock) -> None:
        self._database = database
        self._coreapps = coreapps
        self._clock = clock
        self._counting = asyncio.Lock()
        # By number; empty for the installation. At most one per number.
        self._counted: dict[str, tuple[float, list[Metric]]] = {}
        # The last failure, with its time.
        self._failed: tuple[float, Exception] | None = None

    async def app(self, account: str = "") -> Mapping[str, Sequence[Metric]]:
        """Return the metrics of the only Coreapp under "", or of several by name without those that are unreachable.

        Raises the errors of the Coreapp link when the only one is unreachable.

        account: number whose samples are included; empty for all. Metrics without a number are those of the process.
        """
        block, coreapps = self._of(account)
        if len(coreapps.coreapps()) <= 1:
            only = await coreapps.call_primary_repeatable(lambda n: core.GetMetrics(n=n), core.Metrics)
            return {"": known.read_coreapp(only.text, account, block)}
        responses = await coreapps.call_each(lambda n: core.GetMetrics(n=n), core.Metrics, timeout=_TIMEOUT)
        return {
            coreapp.name: known.read_coreapp(response.text, account, block)
            for coreapp, response in responses
            if not isinstance(response, CoreappUnavailable)
        }

    def _of(self, account: str) -> tuple[int | None, Coreapps]:
        if not account:
            return None, self._coreapps
        of_number = self._coreapps.of(account)
        return of_number.block, of_number

    async def app_by_node(self, account: str = "") -> Mapping[str, Sequence[Metric]]:
        """Return the same as `app`, with a single Coreapp under its name."""
        found = await self.app(account)
        only = self._coreapps.coreapps()
        return {only[0].name if not name and only else name: kept for name, kept in found.items()}

    async def db(self, account: str = "") -> Mapping[str, Sequence[Metric]]:
        """Return counts of the database, at most `CACHED_SECONDS` seconds old.

        account: number whose rows are counted; empty for all
        """
        # One at a time: concurrent requests get the result of the first, or its error, so that none waits twice.
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with self._counting:
            now = self._clock.monotonic()
            counted = self._counted.get(account)
            if counted is None or now - counted[0] > CACHED_SECONDS:
                if self._failed is not None and self._failed[0] > started:
                    raise self._failed[1]
                try:
                    counted = self._counted[account] = (now, await self._count(account))
                except Exception as error:
                    self._failed = loop.time(), error
                    raise
            return {"": counted[1]}

    async def _count(self, account: str) -> list[Metric]:
        async with self._database.reading() as connection:
            by_registration = await contacts.count_by_registration(connection, account)
            by_kind = await messages.count_by_kind(connection, account)
            by_status = await messages.count_by_status(connection, account)
        received = by_status.get(int(Status.DELIVERED), 0) + by_status.get(int(Status.READ), 0)
        return [known.contacts(by_registration), known.messages(by_kind), known.receipts(received)]
