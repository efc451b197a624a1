"""Rise of the Cloud API's messaging limits: a limit rises after half of it was used within 7 days."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping
from typing import Any

from coreapp.number_service import NumberService
from tidings.storage.business import cloud_limits, cloud_reached, numbers
from tidings.storage.business.cloud_limits import CloudLimits
from tidings.storage.business.cloud_reached import WEEK_MS
from tidings.storage.database import Connection
from tidings.wire.cloud import tiers

log = logging.getLogger(__name__)

INTERVAL = 300.0  # seconds between two counts of recipients
RETRY_SECONDS = 5.0  # seconds that a read or a commit waits for an unreachable database
RETRY = 5.0  # seconds until the next try after an error


@dataclasses.dataclass(frozen=True, slots=True)
class _Use:
    """Use of the messaging limit of one WABA."""

    limits: CloudLimits
    tier: str  # limit in force
    is_half_used: bool


class TierRises(NumberService):
    """Service of one number, which raises the messaging limit of its own WABA. It runs with the first shard."""

    name, failure, retry_seconds = "tier-rises", "limits.not_raised", RETRY

    async def run_once(self) -> float | None:
        """Raise the limit when it is due. Returns the seconds until the next run; None to wait for a change of limits.

        Raises `LeaseLost`.
        """
        delay = self._context.settings.cloud_tier_rise
        if math.isinf(delay):
            return None
        use = await self._context.database.query(self._find, retry_seconds=RETRY_SECONDS)
        if use is None:
            return None
        now, rises_at = self._context.now(), use.limits.tier_rises_at
        if rises_at > now:
            return min((rises_at - now) / 1000, INTERVAL)
        if rises_at:
            raised = tiers.next_tier(use.tier)
            await self._change(use.limits, {"tier": raised, "tier_rises_at": 0})
            log.info("limits.raised", extra={"account": self._context.account, "tier": raised})
        elif use.is_half_used:
            await self._change(use.limits, {"tier_rises_at": now + int(delay * 1000)})
            return min(delay, INTERVAL)
        return min(max(delay, 1.0), INTERVAL)

    async def _find(self, connection: Connection) -> _Use | None:
        """Return the use of the limit; None for a number that shares the WABA of another one, and without a limit."""
        account = self._context.account
        if await numbers.find_waba_owner(connection, account) != account:
            return None
        found = await cloud_limits.find(connection, account)
        tier = found.tier if found.tier in tiers.TIERS else self._context.settings.cloud_tier
        if not tiers.TIERS[tier]:
            return None
        half, since = tiers.TIERS[tier] // 2, self._context.now() - WEEK_MS
        used = await cloud_reached.count_distinct(connection, account, since=since, at_most=half)
        return _Use(found, tier, used >= half)

    async def _change(self, found: CloudLimits, values: Mapping[str, Any]) -> None:
        """Store columns, unless the operator has changed the limit since it was read."""

        async def work(connection: Connection) -> None:
            present = await cloud_limits.lock(connection, found.account)
            if (present.tier, present.tier_rises_at) == (found.tier, found.tier_rises_at):
                await cloud_limits.change(connection, found.account, values)

        await self._context.persist(work, retry_seconds=RETRY_SECONDS)
