"""Blocks of tokens, taken from the buckets that the Webapps of the installation share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from prometheus_client import Counter

from tidings.aio import service
from tidings.aio.clock import Clock
from tidings.aio.service import Wakeup
from tidings.storage.business import rate_limits
from tidings.storage.database import Database
from webapp.rate_limits.shared_limits import SharedLimit

log = logging.getLogger(__name__)

# Seconds between two blocks at least, and seconds that the database has for one. The second is short because requests
# may be waiting.
SPACING, TIMEOUT = 0.02, 0.5

BLOCKS = Counter(
    "tidings_api_rate_token_blocks_total", "Blocks of tokens taken from the shared rate limits", ["result"]
)


class TokenBlocks:
    """Service that takes tokens from the shared buckets, for all endpoints in one transaction."""

    name = "rate-limits"

    def __init__(self, database: Database, clock: Clock, *, database_now: Callable[[], int] | None = None) -> None:
        """Create the service.

        database_now: returns Unix microseconds in place of the database's clock
        """
        self._database = database
        self._clock = clock
        self._database_now = database_now
        self._shares: Sequence[SharedLimit] = ()
        self._members = 1
        self._wakeup = Wakeup()
        self._problem = ""

    def serve(self, *shares: SharedLimit) -> None:
        """Add limits to take tokens for. They were created with this object's `wake`."""
        self._shares = (*self._shares, *shares)
        for share in shares:
            share.set_members(self._members)

    def wake(self) -> None:
        """Called when a limit needs tokens."""
        self._wakeup.wake()

    def set_members(self, count: int) -> None:
        """Divide the limits between `count` Webapps."""
        self._members = count
        for share in self._shares:
            share.set_members(count)

    async def run(self, stop: asyncio.Event) -> None:
        await service.run_workers(stop, self._keep_taking())

    async def run_once(self) -> None:
        """Take the tokens that are wanted now, in one transaction."""
        requests = [(share, wanted) for share in self._shares if (wanted := share.wanted()) is not None]
        if not requests:
            return
        now = self._database_now() if self._database_now is not None else None
        try:
            async with self._database.transaction(seconds=TIMEOUT) as connection:
                given = await rate_limits.take(connection, [wanted for _, wanted in requests], now=now)
        except Exception as error:
            # Deadlocks are not retried either, so that waiting requests do not wait longer.
            BLOCKS.labels("failed").inc()
            for share, _ in requests:
                share.not_given()
            if not self._problem:
                log.warning("rate_limits.not_shared", extra={"error": repr(error)[:200]})
            self._problem = repr(error)
            return
        self._problem = ""
        BLOCKS.labels("ok").inc()
        for share, wanted in requests:
            share.given(wanted, given[wanted.name])

    async def _keep_taking(self) -> None:
        while True:
            await self._wakeup.wait(self._pause())
            await self.run_once()
            await asyncio.sleep(SPACING)

    def _pause(self) -> float | None:
        """Return the seconds until tokens are due that no request waits for; `None` when none are."""
        at = min((share.due_at() for share in self._shares), default=float("inf"))
        return max(at - self._clock.monotonic(), 0.0) if at < float("inf") else None
