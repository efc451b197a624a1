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
from webapp.coreapps.interfaces import Coreapps
from webapp.http.errors import CoreappAway

# Seconds that each Coreapp has to respond.
_PATIENCE = 5.0
# Seconds for which counts of the database are cached, because counting reads whole tables.
BELIEVED = 15.0


class Stats:
    """Counters of the Coreapps and of the database."""

    def __init__(self, database: Database, coreapps: Coreapps, clock: Clock) -> None:
        self._database = database
        self._coreapps = coreapps
        self._clock = clock
        self._counting = asyncio.Lock()
        self._counted: tuple[float, list[Metric]] | None = None

    async def app(self) -> Mapping[str, Sequence[Metric]]:
        """Return the metrics of the only Coreapp under "", or of several by name without those that are unreachable.

        Raises the errors of the Coreapp link when the only one is unreachable.
        """
        if len(self._coreapps.coreapps()) <= 1:
            only = await self._coreapps.call_primary_repeatable(lambda n: core.GetMetrics(n=n), core.Metrics)
            return {"": known.read_coreapp(only.text)}
        answers = await self._coreapps.call_each(lambda n: core.GetMetrics(n=n), core.Metrics, timeout=_PATIENCE)
        return {
            coreapp.name: known.read_coreapp(answer.text)
            for coreapp, answer in answers
            if not isinstance(answer, CoreappAway)
        }

    async def app_by_node(self) -> Mapping[str, Sequence[Metric]]:
        """Return the same as `app`, with a single Coreapp under its name."""
        found = await self.app()
        only = self._coreapps.coreapps()
        return {only[0].name if not name and only else name: kept for name, kept in found.items()}

    async def db(self) -> Mapping[str, Sequence[Metric]]:
        """Return counts of the database, at most `BELIEVED` seconds old."""
        # One at a time: concurrent requests get the result of the first.
        async with self._counting:
            now = self._clock.monotonic()
            if self._counted is None or now - self._counted[0] > BELIEVED:
                self._counted = (now, await self._count())
            return {"": self._counted[1]}

    async def _count(self) -> list[Metric]:
        async with self._database.reading() as connection:
            by_registration = await contacts.count_by_registration(connection)
            by_kind = await messages.count_by_kind(connection)
            by_status = await messages.count_by_status(connection)
        received = by_status.get(int(Status.DELIVERED), 0) + by_status.get(int(Status.READ), 0)
        return [known.contacts(by_registration), known.messages(by_kind), known.receipts(received)]
