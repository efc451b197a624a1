"""Asking the Coreapps how they are."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from tidings.storage.business.shards import Owner
from tidings.wire import core
from webapp.coreapps import Coreapps
from webapp.errors import CoreappAway

# Seconds; health that comes later is no health.
_TIMEOUT = 3.0

DISCONNECTED = "disconnected"
ROLE = "coreapp"


class Liveness(Protocol):
    """The database."""

    async def is_alive(self) -> bool: ...


class HealthCheck:
    """The state of the connections to the network."""

    def __init__(self, coreapps: Coreapps, database: Liveness) -> None:
        self._coreapps = coreapps
        self._database = database

    async def describe(self) -> dict[str, Any]:
        """One state for one Coreapp; with several, those that own a shard by their names.

        A Webapp that cannot use its database serves nobody, whatever the Coreapps say.
        """
        alive, answers = await asyncio.gather(
            self._database.is_alive(),
            self._coreapps.ask_each(lambda n: core.GetHealth(n=n), core.Health, timeout=_TIMEOUT),
        )
        if not alive:
            answers = [(owner, CoreappAway("the database of this Webapp cannot be used")) for owner, _ in answers]
        if len(answers) <= 1:
            return _health(answers[0][1]) if answers else {"gateway_status": DISCONNECTED}
        return {_name(owner, answer): {**_health(answer), "role": ROLE} for owner, answer in answers}


def _health(answer: core.Health | CoreappAway) -> dict[str, Any]:
    if isinstance(answer, CoreappAway):
        return {"gateway_status": DISCONNECTED}
    # Clients of the original know one field; another is there only when there is something to say.
    dropped = {"statuses_dropped": answer.statuses_dropped} if answer.statuses_dropped else {}
    return {"gateway_status": answer.gateway_status, **dropped}


def _name(owner: Owner, answer: core.Health | CoreappAway) -> str:
    own = "" if isinstance(answer, CoreappAway) else answer.node
    return owner.node or own or owner.address or "none"
