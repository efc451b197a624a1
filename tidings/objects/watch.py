"""Service that compares a file store with the database every few seconds, for readiness and metrics."""

from __future__ import annotations

import asyncio
import logging

from prometheus_client import Gauge

from tidings.objects.identity import Identity
from tidings.runtime.readiness import AWAY, OK
from tidings.runtime.service import wait_for
from tidings.storage import outages

log = logging.getLogger(__name__)

AVAILABLE = Gauge("tidings_file_store_available", "Whether the file store is the recorded one: 1 or 0", ["store"])

INTERVAL = 2.0  # seconds
# Seconds for one comparison: a network file system that hangs is away, too.
PATIENCE = 5.0


class StoreWatch:
    """State of one file store. A database that is away changes nothing about it."""

    def __init__(self, identity: Identity, *, interval: float = INTERVAL) -> None:
        """interval: seconds between two comparisons."""
        self.name = f"{identity.name} store"
        self._identity = identity
        self._store = identity.name
        self._interval = interval
        self._problem = ""
        self._looking: asyncio.Task[str] | None = None
        AVAILABLE.labels(identity.name).set(1)

    @property
    def state(self) -> str:
        """`OK` or `AWAY`, as of the last comparison."""
        return AWAY if self._problem else OK

    async def run(self, stop: asyncio.Event) -> None:
        while not await wait_for(stop, self._interval):
            await self.run_once()

    async def run_once(self) -> None:
        """Compare once."""
        # A read of a hung mount cannot be cancelled: no second one is begun beside it.
        if self._looking is None:
            self._looking = asyncio.create_task(self._identity.refresh(), name=self.name)
        done, _ = await asyncio.wait([self._looking], timeout=PATIENCE)
        if not done:
            self._note(f"no answer within {PATIENCE:g} s")
            return
        looked, self._looking = self._looking, None
        try:
            self._note(looked.result())
        except OSError as error:
            self._note(repr(error))
        except Exception as error:
            if not outages.is_outage(error):
                raise

    def _note(self, problem: str) -> None:
        if problem and not self._problem:
            log.error("store.away", extra={"store": self._store, "error": problem})
        elif self._problem and not problem:
            log.info("store.back", extra={"store": self._store})
        self._problem = problem
        AVAILABLE.labels(self._store).set(0 if problem else 1)
