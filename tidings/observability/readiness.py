"""Readiness of a process, for probes every few seconds by clients without a secret."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping

from tidings.aio.clock import Clock

# Seconds for which a result is reused: unauthenticated clients may request it, and a check calls other processes.
FRESH = 1.0

OK, AWAY = "ok", "away"


class Readiness:
    """Readiness of the process's dependencies, checked at most once in `FRESH` seconds."""

    def __init__(self, check: Callable[[], Awaitable[Mapping[str, str]]], clock: Clock) -> None:
        """check(): `OK` or `AWAY` for each dependency."""
        self._check = check
        self._clock = clock
        self._asking = asyncio.Lock()
        self._found: Mapping[str, str] = {}
        self._found_at = -math.inf

    async def check(self) -> Mapping[str, str]:
        """Return `OK` or `AWAY` for each dependency, at most `FRESH` seconds old."""
        # One check at a time: concurrent callers share its result.
        async with self._asking:
            if self._clock.monotonic() - self._found_at > FRESH:
                self._found = await self._check()
                self._found_at = self._clock.monotonic()
            return self._found
