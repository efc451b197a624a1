"""Keeps what a Webapp knows of logins through others up to date, and its tables short."""

from __future__ import annotations

import asyncio
import logging

from tidings.runtime import service
from tidings.runtime.clock import Clock
from webapp.users.guessing import Guessing

log = logging.getLogger(__name__)

# Seconds between two looks for addresses that became familiar through other Webapps, and between two sweeps.
POLL, SWEEP = 10.0, 60.0


class LoginUpkeep:
    """A service."""

    name = "login-upkeep"

    def __init__(self, guessing: Guessing, clock: Clock) -> None:
        self._guessing = guessing
        self._clock = clock
        self._next_sweep = clock.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        while not await service.wait_for(stop, POLL):
            try:
                await self.run_once()
            except Exception as error:
                log.warning("logins.not_kept_up", extra={"error": repr(error)[:200]})

    async def run_once(self) -> None:
        await self._guessing.poll()
        if self._clock.monotonic() >= self._next_sweep:
            self._next_sweep = self._clock.monotonic() + SWEEP
            await self._guessing.sweep()
