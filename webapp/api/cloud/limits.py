"""Limits of the Cloud API that apply to the messages of each number. All of them are off by default."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

from tidings.aio.clock import Clock
from tidings.storage.business import cloud_limits
from tidings.storage.business.cloud_limits import HIGH, STANDARD, CloudLimits
from tidings.storage.database import Database
from tidings.wire.cloud.codes import MAINTENANCE, RECIPIENT_NOT_ALLOWED
from tidings.wire.cloud.tiers import TIERS, UNLIMITED
from webapp.api.cloud import errors

UPGRADING = "The throughput of the number is being upgraded. Try again in a minute."
NOT_ALLOWED = "Recipient phone number not in allowed list: Add recipient phone number to recipient list and try again."


@dataclasses.dataclass(frozen=True, slots=True)
class SendingLimits:
    """Limits that apply to the messages of one number."""

    is_pair_limited: bool = False
    tier: str = UNLIMITED  # messaging limit of the WABA
    # Recipients that a number in test mode may send to; `None` for any.
    test_recipients: frozenset[str] | None = None
    is_high: bool = False  # throughput after the upgrade
    upgrade_ends_at: float = 0.0  # Unix seconds; 0 without an upgrade

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

    def __init__(
        self,
        database: Database,
        clock: Clock,
        defaults: SendingLimits,
        *,
        owner_of: Callable[[str], str],
        set_throughput: Callable[[str, bool], None] = lambda account, is_high: None,
    ) -> None:
        """Create the cache.

        defaults: limits of numbers without individual ones
        owner_of(number): returns the number that owns the WABA of a number
        set_throughput: called with a number, and with whether its throughput is high
        """
        self._clock = clock
        self._owner_of = owner_of
        self._set_throughput = set_throughput
        self._database = database
        self._defaults = defaults
        self._own: Mapping[str, SendingLimits] = {}

    def of(self, account: str) -> SendingLimits:
        """Return the limits of a number. The messaging limit is that of its WABA."""
        limits, owner = self._own.get(account, self._defaults), self._owner_of(account)
        if owner == account:
            return limits
        tier = self._own.get(owner, self._defaults).tier
        return limits if limits.tier == tier else dataclasses.replace(limits, tier=tier)

    def throughput(self, account: str) -> str:
        """Return the level of a number's throughput."""
        limits = self.of(account)
        return HIGH if limits.is_high and self._clock.now() >= limits.upgrade_ends_at else STANDARD

    def require_upgraded(self, limits: SendingLimits) -> None:
        """Raise `GraphError` while the throughput of a number is upgraded."""
        wait = limits.upgrade_ends_at - self._clock.now()
        if wait > 0:
            raise errors.coded(MAINTENANCE, UPGRADING, retry_after=math.ceil(wait))

    async def poll(self) -> None:
        """Read the limits."""
        async with self._database.reading() as connection:
            rows = await cloud_limits.list_limits(connection)
            allowed = await cloud_limits.list_recipients(connection)
        former = self._own
        self._own = {row.account: self._limits_of(row, allowed.get(row.account, frozenset())) for row in rows}
        for account in former.keys() - self._own.keys():
            self._set_throughput(account, False)
        for row in rows:
            self._set_throughput(row.account, row.throughput == HIGH)

    def _limits_of(self, row: CloudLimits, allowed: frozenset[str]) -> SendingLimits:
        return dataclasses.replace(
            self._defaults,
            # A later release may have tiers that this one does not know.
            tier=row.tier if row.tier in TIERS else self._defaults.tier,
            test_recipients=allowed if row.is_test else None,
            is_high=row.throughput == HIGH,
            upgrade_ends_at=row.upgrade_ends_at / 1000,
        )
