"""Whether requests can be served, for those who ask every few seconds and have no secret."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping

from tidings.runtime.clock import Clock
from tidings.wire import core
from webapp.coreapps import Coreapps
from webapp.errors import CoreappAway
from webapp.health.service import DISCONNECTED, Liveness

# Seconds that an answer is handed out again: strangers may ask, and to find out takes a question to each Coreapp.
FRESH = 1.0
# Seconds that the Coreapps have.
_TIMEOUT = 3.0

OK, AWAY = "ok", "away"
CONNECTING = "connecting"


class Readiness:
    """What the sending of a message needs: the database, an owner for each shard, and the network behind each."""

    def __init__(self, coreapps: Coreapps, database: Liveness, clock: Clock) -> None:
        self._coreapps = coreapps
        self._database = database
        self._clock = clock
        self._asking = asyncio.Lock()
        self._found: Mapping[str, str] = {}
        self._found_at = -math.inf

    async def check(self) -> Mapping[str, str]:
        """`ok` or `away` for each, at most `FRESH` seconds old."""
        # One at a time: whoever comes meanwhile gets what the first one finds.
        async with self._asking:
            if self._clock.monotonic() - self._found_at > FRESH:
                self._found = await self._look()
                self._found_at = self._clock.monotonic()
            return self._found

    async def _look(self) -> Mapping[str, str]:
        alive, answers = await asyncio.gather(
            self._database.is_alive(),
            self._coreapps.ask_all(lambda n: core.GetHealth(n=n), core.Health, timeout=_TIMEOUT),
        )
        there = [answer.gateway_status for answer in answers if not isinstance(answer, CoreappAway)]
        everyone = bool(answers) and len(there) == len(answers)
        return {
            "database": OK if alive and DISCONNECTED not in there else AWAY,
            "coreapps": OK if everyone else AWAY,
            "network": AWAY if CONNECTING in there else OK,
        }
