"""Service that compares a file store with the database every few seconds, for readiness and metrics."""

from __future__ import annotations

import asyncio
import logging

from prometheus_client import Gauge

from tidings.aio.service import wait_for
from tidings.objects.identity import StoreIdentity
from tidings.observability.readiness import AWAY, OK
from tidings.storage import outages

log = logging.getLogger(__name__)

AVAILABLE = Gauge("tidings_file_store_available", "Whether the file store is the recorded one: 1 or 0", ["store"])

# Seconds between two comparisons, of a directory and of a bucket, whose requests cost money.
INTERVAL, BUCKET_INTERVAL = 2.0, 15.0
# Seconds for one comparison: a network file system that hangs counts as away, too.
TIMEOUT = 5.0


class StoreWatch:
    """State of one file store. An outage of the database does not change it."""

    def __init__(self, identity: StoreIdentity) -> None:
        self.name = f"{identity.name} store"
        self._identity = identity
        self._store = identity.name
        self._interval = INTERVAL if identity.is_local else BUCKET_INTERVAL
        self._problem = ""
        self._is_wrong = False
        self._checking: asyncio.Task[str] | None = None
        AVAILABLE.labels(identity.name).set(1)

    @property
    def state(self) -> str:
        """`OK` or `AWAY`, as of the last comparison.

        A bucket that cannot be reached stays `OK`: it is unreachable for all processes alike, and messages without
        files still work, so taking every process out of service would make things worse.
        """
        return AWAY if self._is_wrong or (self._problem and self._identity.is_local) else OK

    async def run(self, stop: asyncio.Event) -> None:
        while not await wait_for(stop, self._interval):
            await self.run_once()

    async def run_once(self) -> None:
        """Compare once; wait at most `TIMEOUT` seconds for the comparison."""
        # A read of a hung mount cannot be cancelled, so no second one is started.
        if self._checking is None:
            self._checking = asyncio.create_task(self._identity.refresh(), name=self.name)
        done, _ = await asyncio.wait([self._checking], timeout=TIMEOUT)
        if not done:
            self._note(f"no response within {TIMEOUT:g} s")
            return
        check, self._checking = self._checking, None
        try:
            wrong = check.result()
            self._is_wrong = bool(wrong)
            self._note(wrong)
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
