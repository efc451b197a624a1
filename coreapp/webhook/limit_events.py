"""Webhooks of the Cloud API about changed limits of a number: its messaging limit and its throughput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coreapp.journal.change import Change
from coreapp.number_service import NumberService
from coreapp.webhook import events
from tidings.storage.business import callbacks, cloud_limits, numbers
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.cloud_limits import HIGH, AnnouncedLimits, CloudLimits
from tidings.storage.database import Connection
from tidings.wire.cloud.tiers import TIERS

QUALITY_FIELD, CAPABILITY_FIELD = "phone_number_quality_update", "business_capability_update"
FIRST_WITH_PORTFOLIO_LIMITS = 24  # major version
MAX_NUMBERS = 25  # numbers of a WABA, which the webhook states
RETRY_SECONDS = 5.0  # seconds that a read waits for an unreachable database
RETRY = 5.0  # seconds until the next try after an error
_SUBJECT = "limits"

Value = Mapping[str, Any]


def capability(tier: str, version: int) -> Value:
    """Return the value of `business_capability_update`. No limit is -1.

    version: major version of the webhooks
    """
    limit = TIERS[tier] or -1
    if version >= FIRST_WITH_PORTFOLIO_LIMITS:
        return {"max_daily_conversations_per_business": limit, "max_phone_numbers_per_waba": MAX_NUMBERS}
    return {"max_daily_conversation_per_phone": limit, "max_phone_numbers_per_business": MAX_NUMBERS}


def changed_tier(account: str, before: str, after: str) -> Value:
    """Return the value of `phone_number_quality_update` about another messaging limit."""
    order = list(TIERS)
    event = "UPGRADE" if order.index(after) > order.index(before) else "DOWNGRADE"
    return {"display_phone_number": account, "event": event, "old_limit": before, "current_limit": after}


def raised_throughput(account: str, tier: str) -> Value:
    """Return the value of `phone_number_quality_update` after an upgrade of the throughput."""
    return {"display_phone_number": account, "event": "THROUGHPUT_UPGRADE", "current_limit": tier}


class LimitEvents(NumberService):
    """Service of one number that posts its changed limits once. It runs with the first shard."""

    name, failure, retry_seconds = "limit-events", "limits.not_announced", RETRY

    async def run_once(self) -> float | None:
        """Post what has changed. Returns the seconds until an upgrade ends; None without one. Raises `LeaseLost`."""
        context = self._context
        row, tier, created_at = await context.database.query(self._find, retry_seconds=RETRY_SECONDS)
        waits = max(row.upgrade_ends_at - context.now(), 0) if row.throughput == HIGH else 0
        throughput = row.announced_throughput if waits else row.throughput
        if (tier, throughput) != (row.announced_tier, row.announced_throughput):
            is_raised = throughput == HIGH != row.announced_throughput
            change = Change(
                context.account,
                new_callbacks=self._callbacks(row, tier, created_at, is_raised=is_raised),
                announced_limits=[AnnouncedLimits(context.account, tier, throughput, row.announcements + 1)],
            )
            await context.journal.write(change)
        return waits / 1000 if waits else None

    async def _find(self, connection: Connection) -> tuple[CloudLimits, str, int]:
        """Return the limits of the number, the messaging limit of its WABA, and the time at which the number was added,
        Unix milliseconds.
        """
        row = await cloud_limits.find(connection, self._context.account)
        number = await numbers.find(connection, row.account)
        owner = number.waba_of if number is not None else ""
        tier = (await cloud_limits.find(connection, owner)).tier if owner else row.tier
        return row, tier, number.created_at if number is not None else 0

    def _callbacks(self, row: CloudLimits, tier: str, created_at: int, *, is_raised: bool) -> Sequence[Callback]:
        """Return the callbacks about changed limits that are subscribed to.

        tier: messaging limit of the WABA
        created_at: as `_find` returns it
        is_raised: whether an upgrade of the throughput has ended
        """
        before, after = self._tier(row.announced_tier), self._tier(tier)
        made: list[Callback | None] = []
        if before != after:
            made.append(self._callback(row, created_at, QUALITY_FIELD, changed_tier(row.account, before, after)))
            cloud = self._context.config.cloud
            # The numbers of a WABA have one capability, which its owner reports.
            if cloud is not None and cloud.identity.waba_owner == row.account:
                made.append(self._callback(row, created_at, CAPABILITY_FIELD, capability(after, cloud.version)))
        if is_raised:
            made.append(self._callback(row, created_at, QUALITY_FIELD, raised_throughput(row.account, after)))
        return [callback for callback in made if callback is not None]

    def _tier(self, own: str) -> str:
        return own if own in TIERS else self._context.settings.cloud_tier

    def _callback(self, row: CloudLimits, created_at: int, field: str, value: Value) -> Callback | None:
        """Return the callback with a value; None where the field is not subscribed to."""
        name = (
            f"{row.account} {field} {row.upgrade_ends_at} {row.announced_tier} {sorted(value.items())}"
            f" {row.announcements} {created_at}"  # the same change may happen again, also after the number was removed
        )
        return events.account_change(
            self._context,
            field,
            value,
            int(self._context.clock.now()),
            subject=_SUBJECT,
            event=callbacks.event_of(name.encode()),
        )
