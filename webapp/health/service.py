"""Asking the Coreapps how they are."""

from __future__ import annotations

from typing import Any, Protocol

from tidings.storage.shards import Owner
from tidings.wire import core
from webapp.coreapp_peer import Make
from webapp.errors import CoreappAway

# Seconds; health that comes later is no health.
_TIMEOUT = 3.0

DISCONNECTED = "disconnected"
ROLE = "coreapp"


class AskEach(Protocol):
    """Every Coreapp."""

    async def ask_each(
        self, make: Make, expect: type[core.Health], *, timeout: float
    ) -> list[tuple[Owner, core.Health | CoreappAway]]: ...


class HealthCheck:
    """The state of the connections to the network."""

    def __init__(self, coreapps: AskEach) -> None:
        self._coreapps = coreapps

    async def describe(self) -> dict[str, Any]:
        """One state for one Coreapp; with several, those that own a shard by their names."""
        answers = await self._coreapps.ask_each(lambda n: core.GetHealth(n=n), core.Health, timeout=_TIMEOUT)
        if len(answers) <= 1:
            return {"gateway_status": _status(answers[0][1]) if answers else DISCONNECTED}
        return {_name(owner, answer): {"gateway_status": _status(answer), "role": ROLE} for owner, answer in answers}


def _status(answer: core.Health | CoreappAway) -> str:
    return DISCONNECTED if isinstance(answer, CoreappAway) else answer.gateway_status


def _name(owner: Owner, answer: core.Health | CoreappAway) -> str:
    own = "" if isinstance(answer, CoreappAway) else answer.node
    return owner.node or own or owner.address or "none"
