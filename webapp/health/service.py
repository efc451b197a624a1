"""Asking the Coreapps how they are."""

from __future__ import annotations

from typing import Protocol

from tidings.wire import core
from webapp.coreapp_link import Make
from webapp.errors import CoreappAway

# Seconds; health that comes later is no health.
_TIMEOUT = 3.0

DISCONNECTED = "disconnected"
_WORST_FIRST = (DISCONNECTED, "unregistered", "uninitialized", "connecting", "connected")


class AskAll(Protocol):
    """Every Coreapp."""

    async def ask_all(
        self, make: Make, expect: type[core.Health], *, timeout: float
    ) -> list[core.Health | CoreappAway]: ...


class HealthCheck:
    """The state of the connection to the network."""

    def __init__(self, coreapps: AskAll) -> None:
        self._coreapps = coreapps

    async def gateway_status(self) -> str:
        """`connected` only if every shard's Coreapp says so; otherwise what the worst one says."""
        answers = await self._coreapps.ask_all(lambda n: core.GetHealth(n=n), core.Health, timeout=_TIMEOUT)
        found = {DISCONNECTED if isinstance(answer, CoreappAway) else answer.gateway_status for answer in answers}
        return next((status for status in _WORST_FIRST if status in found), DISCONNECTED)
