"""Whether a process can do its work, for those who ask every few seconds and have no secret."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping

from tidings.runtime.clock import Clock

# Seconds that an answer is handed out again: strangers may ask, and to find out takes questions to others.
FRESH = 1.0

OK, AWAY = "ok", "away"


class Readiness:
    """What the process needs, looked into at most once in `FRESH` seconds."""

    def __init__(self, look: Callable[[], Awaitable[Mapping[str, str]]], clock: Clock) -> None:
        """look(): `OK` or `AWAY` for each need."""
        self._look = look
        self._clock = clock
        self._asking = asyncio.Lock()
        self._found: Mapping[str, str] = {}
        self._found_at = -math.inf

    async def check(self) -> Mapping[str, str]:
        """`OK` or `AWAY` for each need, at most `FRESH` seconds old."""
        # One at a time: whoever comes meanwhile gets what the first one finds.
        async with self._asking:
            if self._clock.monotonic() - self._found_at > FRESH:
                self._found = await self._look()
                self._found_at = self._clock.monotonic()
            return self._found
