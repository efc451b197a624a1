"""Health of the Coreapps."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import Any, Protocol

from tidings.aio.probe import Probe
from tidings.storage import outages
from tidings.storage.business import layouts
from tidings.storage.database import Database
from tidings.wire import core
from webapp.coreapps.interfaces import AllCoreapps, Coreapps
from webapp.coreapps.shard_map import Coreapp
from webapp.http.errors import CoreappUnavailable

# Seconds after which a Coreapp that has not responded counts as unreachable.
_TIMEOUT = 3.0
# Seconds that the database has for optional details.
_TIMEOUT = 1.0
# Seconds. A check that takes longer than `_SOON`, because a Coreapp is busy, is awaited only when the last result is
# older than `_RECENT`.
_SOON, _RECENT = 0.02, 2.0

DISCONNECTED = "disconnected"


class Liveness(Protocol):
    """The part of the database that health checks need."""

    async def is_alive(self) -> bool: ...


class HealthCheck:
    """State of the connections to the network, at most 2 seconds old.

    It is older than the request only when a new check takes longer than 20 ms.
    """

    def __init__(self, coreapps: AllCoreapps, database: Database) -> None:
        self._coreapps = coreapps
        self._database = database
        # By number; empty for the installation. At most one per number.
        self._probes: dict[str, Probe[[], Mapping[str, Any]]] = {}

    async def describe(self, account: str = "") -> Mapping[str, Any]:
        """Return one state for a single Coreapp, and for several a state by name, including standbys and lost ones.

        While the number of shards is being changed, each state includes the progress. A Webapp that cannot use
        its database reports `disconnected` whatever the Coreapps respond.

        account: number to report on; empty for all
        """
        probe = self._probes.get(account)
        if probe is None:
            probe = self._probes[account] = Probe(functools.partial(self._check, account), 0.0, "health")
        return await probe.result_within(_SOON, _RECENT)

    async def _check(self, account: str) -> Mapping[str, Any]:
        coreapps: Coreapps = self._coreapps.of(account) if account else self._coreapps
        alive, responses = await asyncio.gather(
            self._database.is_alive(),
            coreapps.call_each(lambda n: core.GetHealth(n=n, account=account), core.Health, timeout=_TIMEOUT),
        )
        if not alive:
            responses = [
                (coreapp, CoreappUnavailable("the database of this Webapp cannot be used")) for coreapp, _ in responses
            ]
        change = await self._change(account) if alive else {}
        if len(responses) <= 1:
            return {**(_health(responses[0][1]) if responses else {"gateway_status": DISCONNECTED}), **change}
        unreached = coreapps.unreached()
        return {
            coreapp.name: {**_node_health(coreapp, response, unreached.get(coreapp.address, 0.0)), **change}
            for coreapp, response in responses
        }

    async def _change(self, account: str) -> dict[str, Any]:
        """Return the progress as in `GET /v1/account/shards`.

        Returns an empty mapping when no change is in progress or it cannot be read.
        """
        block = self._coreapps.of(account).block if account else 0
        try:
            layout = await self._database.query(
                lambda connection: layouts.find(connection, block), retry_seconds=_TIMEOUT
            )
        except Exception as error:
            if not outages.is_outage(error):
                raise
            return {}
        if not layout.is_changing:
            return {}
        return {"shards": layout.wanted, "active_shards": layout.shards, "moved": layout.moved}


def _health(response: core.Health | CoreappUnavailable) -> dict[str, Any]:
    if isinstance(response, CoreappUnavailable):
        return {"gateway_status": DISCONNECTED}
    # Clients of the On-Premises API know one field, so the others are present only when they report something.
    dropped = {"statuses_dropped": response.statuses_dropped} if response.statuses_dropped else {}
    elsewhere = {"registered_elsewhere": True} if response.elsewhere else {}
    return {"gateway_status": response.gateway_status, **dropped, **elsewhere}


def _node_health(coreapp: Coreapp, response: core.Health | CoreappUnavailable, unreached: float) -> dict[str, Any]:
    """Return the health of one of several Coreapps.

    unreached: seconds since this Webapp first failed to reach it; 0 while it is reached
    """
    since = {}
    if coreapp.is_lost:
        since = {"silent_for_s": round(coreapp.heartbeat_age)}
    elif unreached >= 1:
        since = {"unreached_for_s": round(unreached)}
    return {**_health(response), "role": coreapp.role, **since}
