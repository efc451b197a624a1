"""Storage of envelopes that have been undecided in memory for too long, ten times a second."""

from __future__ import annotations

import asyncio

from network.routing.router import Router
from tidings.aio.service import wait_for

INTERVAL = 0.1  # Seconds between two passes.


class Sweeper:
    """Service that calls the router's `sweep`."""

    name = "sweeper"

    def __init__(self, router: Router) -> None:
        self._router = router

    async def run(self, stop: asyncio.Event) -> None:
        while not await wait_for(stop, INTERVAL):
            self.run_once()

    def run_once(self) -> None:
        """Run one pass."""
        self._router.sweep()
