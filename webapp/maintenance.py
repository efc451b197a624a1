"""Maintenance tasks of a Webapp, which run once a minute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from tidings.aio import service

log = logging.getLogger(__name__)

INTERVAL = 60.0  # seconds


class Maintenance:
    """Service that runs named maintenance tasks. A failed task does not prevent the others."""

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
