"""Limits of the Cloud API that apply to the messages of each number. All of them are off by default."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tidings.storage.business import cloud_limits
from tidings.storage.business.cloud_limits import CloudLimits
from tidings.storage.database import Database
from tidings.wire.cloud.tiers import TIERS, UNLIMITED


@dataclasses.dataclass(frozen=True, slots=True)
class SendingLimits:
    """Limits that apply to the messages of one number."""

    is_pair_limited: bool = False
    tier: str = UNLIMITED  # messaging limit

    @property
    def recipients(self) -> int:
        """Return the recipients that may be reached outside their service window in 24 hours; 0 for no limit."""
        return TIERS[self.tier]


class NumberSendingLimits:
    """Cached limits of each number. Changes by other processes are effective within a second."""

    def __init__(self, database: Database, defaults: SendingLimits) -> None:
        """defaults: limits of numbers without limits of their own"""
        self._database = database
        self._defaults = defaults
        self._own: Mapping[str, SendingLimits] = {}

    def of(self, account: str) -> SendingLimits:
        """Return the limits of a number."""
        return self._own.get(account) or self._defaults

    async def poll(self) -> None:
        """Read the limits."""
        async with self._database.reading() as connection:
            rows = await cloud_limits.list_limits(connection)
        self._own = {row.account: self._limits_of(row) for row in rows}

    def _limits_of(self, row: CloudLimits) -> SendingLimits:
        # A later release may have tiers that this one does not know.
        return dataclasses.replace(self._defaults, tier=row.tier if row.tier in TIERS else self._defaults.tier)
