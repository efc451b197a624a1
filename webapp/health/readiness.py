"""What the sending of a message needs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tidings.runtime.readiness import AWAY, OK
from tidings.wire import core
from webapp.coreapps import Coreapps
from webapp.errors import CoreappAway
from webapp.health.service import DISCONNECTED, Liveness

# Seconds that the Coreapps have.
_TIMEOUT = 3.0

CONNECTING = "connecting"


class Needs:
    """The database, an owner for each shard, and the network behind each."""

    def __init__(self, coreapps: Coreapps, database: Liveness) -> None:
        self._coreapps = coreapps
        self._database = database

    async def look(self) -> Mapping[str, str]:
        """`OK` or `AWAY` for each."""
        alive, answers = await asyncio.gather(
            self._database.is_alive(),
            self._coreapps.ask_all(lambda n: core.GetHealth(n=n), core.Health, timeout=_TIMEOUT),
        )
        there = [answer.gateway_status for answer in answers if not isinstance(answer, CoreappAway)]
        everyone = bool(answers) and len(there) == len(answers)
        return {
            "database": OK if alive and DISCONNECTED not in there else AWAY,
            "coreapps": OK if everyone else AWAY,
            "network": AWAY if CONNECTING in there else OK,
        }
