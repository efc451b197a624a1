"""Membership of a process among those of its kind: a heartbeat at every interval, and the end."""

from __future__ import annotations

import asyncio
import logging

from tidings.aio import service

log = logging.getLogger(__name__)


class Membership:
    """Service that sends the heartbeats of this process. Subclasses implement the storage of the list of processes."""

    name = "membership"
    interval: float  # seconds between two heartbeats
    events = "membership"  # first part of the names of log events

    async def run(self, stop: asyncio.Event) -> None:
        """Send heartbeats until `stop`. Raises the errors that `missed` raises."""
        while not await service.wait_for(stop, self.interval):
            await self.run_once()

    async def run_once(self) -> bool:
        """Send one heartbeat. Returns whether it succeeded."""
        try:
            await self.renew()
        except Exception as error:
            self.missed(error)
            return False
        return True

    async def leave(self) -> None:
        """Leave the list of processes. A failure is logged: the others notice the missing heartbeats."""
        try:
            await self.remove()
        except Exception as error:
            log.warning(f"{self.events}.not_left", extra={"error": repr(error)[:200]})

    async def renew(self) -> None:
        """Send one heartbeat. Raises what `missed` handles."""
        raise NotImplementedError

    def missed(self, error: Exception) -> None:
        """Handle a heartbeat that failed. Raises errors that end the process."""
        log.warning(f"{self.events}.not_renewed", extra={"error": repr(error)[:200]})

    async def remove(self) -> None:
        """Remove this process from the list."""
        raise NotImplementedError
