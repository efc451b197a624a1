"""Blocks of tokens, taken from the buckets that the Webapps of the installation share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from prometheus_client import Counter

from tidings.runtime import service
from tidings.runtime.clock import Clock
from tidings.runtime.service import Wakeup
from tidings.storage.business import rate_limits
from tidings.storage.database import Database
from webapp.rate_limits.shares import Share

log = logging.getLogger(__name__)

# Seconds between two blocks at least, and that the database has for one: somebody may be waiting.
SPACING, PATIENCE = 0.02, 0.5

LEASES = Counter("tidings_api_rate_leases_total", "Times that tokens were taken of the shared rate limits", ["result"])


class Leases:
    """A service. All endpoints that need tokens get them in one transaction."""

    name = "rate-limits"

    def __init__(self, database: Database, clock: Clock, *, database_now: Callable[[], int] | None = None) -> None:
        """database_now(): Unix microseconds, in place of the database's clock."""
        self._database = database
        self._clock = clock
        self._database_now = database_now
        self._shares: Sequence[Share] = ()
        self._wakeup = Wakeup()
        self._problem = ""

    def serve(self, *shares: Share) -> None:
        """Those whose tokens are taken here; made with `wake`."""
        self._shares = shares

    def wake(self) -> None:
        """A share needs tokens."""
        self._wakeup.kick()

    def set_members(self, count: int) -> None:
        """So many Webapps share the limits."""
        for share in self._shares:
            share.set_members(count)

    async def run(self, stop: asyncio.Event) -> None:
        await service.run_workers(stop, self._keep_taking())

    async def run_once(self) -> None:
        """Take what is wanted now, in one transaction."""
        asked = [(share, wanted) for share in self._shares if (wanted := share.wanted()) is not None]
        if not asked:
            return
        now = self._database_now() if self._database_now is not None else None
        try:
            async with self._database.transaction(seconds=PATIENCE) as connection:
                given = await rate_limits.take(connection, [wanted for _, wanted in asked], now=now)
        except Exception as error:
            # Also a deadlock: whoever waits is not made to wait for another try.
            LEASES.labels("failed").inc()
            for share, _ in asked:
                share.not_given()
            if not self._problem:
                log.warning("rate_limits.not_shared", extra={"error": repr(error)[:200]})
            self._problem = repr(error)
            return
        self._problem = ""
        LEASES.labels("ok").inc()
        for share, wanted in asked:
            share.given(wanted, given[wanted.name])

    async def _keep_taking(self) -> None:
        while True:
            await self._wakeup.wait(self._pause())
            await self.run_once()
            await asyncio.sleep(SPACING)

    def _pause(self) -> float | None:
        """Seconds until a share is to be filled that nobody waits for."""
        at = min((share.due_at() for share in self._shares), default=float("inf"))
        return max(at - self._clock.monotonic(), 0.0) if at < float("inf") else None
