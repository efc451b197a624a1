"""What a Webapp does once a minute, whether anything has changed or not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from tidings.runtime import service

log = logging.getLogger(__name__)

INTERVAL = 60.0  # seconds


class Upkeep:
    """A service. Each chore has a name, and none keeps the others from being done."""

    name = "upkeep"

    def __init__(self, chores: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
        self._chores = chores

    async def run(self, stop: asyncio.Event) -> None:
        while not await service.wait_for(stop, INTERVAL):
            await self.run_once()

    async def run_once(self) -> None:
        for name, chore in self._chores.items():
            try:
                await chore()
            except Exception as error:
                log.warning("upkeep.failed", extra={"chore": name, "error": repr(error)[:200]})
