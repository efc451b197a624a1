"""Limits of the Cloud API that apply to the messages of each number. All of them are off by default."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tidings.storage.business import cloud_limits
from tidings.storage.business.cloud_limits import CloudLimits
from tidings.storage.database import Database
from tidings.wire.cloud.codes import RECIPIENT_NOT_ALLOWED
from tidings.wire.cloud.tiers import TIERS, UNLIMITED
from webapp.api.cloud import errors

NOT_ALLOWED = (
    "Recipient phone number not in allowed list: Add recipient phone number to recipient list and try again."
)


@dataclasses.dataclass(frozen=True, slots=True)
class SendingLimits:
    """Limits that apply to the messages of one number."""

    is_pair_limited: bool = False
    tier: str = UNLIMITED  # messaging limit
    # Recipients that a number in test mode may send to; `None` for any.
    test_recipients: frozenset[str] | None = None

    @property
    def recipients(self) -> int:
        """Return the recipients that may be reached outside their service window in 24 hours; 0 for no limit."""
        return TIERS[self.tier]

    def require_allowed(self, to: str) -> None:
        """Raise `GraphError` for a recipient to whom a number in test mode may not send."""
        if self.test_recipients is not None and to not in self.test_recipients:
            raise errors.coded(RECIPIENT_NOT_ALLOWED, NOT_ALLOWED)


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
            allowed = await cloud_limits.list_recipients(connection)
        self._own = {row.account: self._limits_of(row, allowed.get(row.account, frozenset())) for row in rows}

    def _limits_of(self, row: CloudLimits, allowed: frozenset[str]) -> SendingLimits:
        return dataclasses.replace(
            self._defaults,
            # A later release may have tiers that this one does not know.
            tier=row.tier if row.tier in TIERS else self._defaults.tier,
            test_recipients=allowed if row.is_test else None,
        )
