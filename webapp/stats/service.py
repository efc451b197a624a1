"""Asking the Coreapps what they count, and the database what it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from prometheus_client import Metric

from tidings.runtime.clock import Clock
from tidings.storage.business import contacts, messages
from tidings.storage.business.messages import Status
from tidings.storage.database import Database
from tidings.wire import core
from webapp.coreapps import Coreapps
from webapp.errors import CoreappAway
from webapp.stats import known

# Seconds that a Coreapp may take to say what it counts.
_PATIENCE = 5.0
# Seconds that counts of the database are believed: to count reads whole tables.
BELIEVED = 15.0


class Stats:
    """Counters of Coreapps and of the database."""

    def __init__(self, database: Database, coreapps: Coreapps, clock: Clock) -> None:
        self._database = database
        self._coreapps = coreapps
        self._clock = clock
        self._counting = asyncio.Lock()
        self._counted: tuple[float, list[Metric]] | None = None

    async def app(self) -> Mapping[str, Sequence[Metric]]:
        """The metrics of the one Coreapp under "", of several by their names; those that are away have none.

        Raises what the Coreapp link raises when the only one is away.
        """
        if len(self._coreapps.coreapps()) <= 1:
            only = await self._coreapps.ask_first_safely(lambda n: core.GetMetrics(n=n), core.Metrics)
            return {"": known.read_coreapp(only.text)}
        answers = await self._coreapps.ask_each(lambda n: core.GetMetrics(n=n), core.Metrics, timeout=_PATIENCE)
        return {
            coreapp.name: known.read_coreapp(answer.text)
            for coreapp, answer in answers
            if not isinstance(answer, CoreappAway)
        }

    async def app_by_node(self) -> Mapping[str, Sequence[Metric]]:
        """As `app`, under its name also where there is one Coreapp only."""
        found = await self.app()
        only = self._coreapps.coreapps()
        return {only[0].name if not name and only else name: kept for name, kept in found.items()}

    async def db(self) -> Mapping[str, Sequence[Metric]]:
        """Counts of what is in the database, at most `BELIEVED` seconds old."""
        # One at a time: whoever comes meanwhile gets what the first one finds.
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
