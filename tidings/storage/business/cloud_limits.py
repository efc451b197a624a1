"""Limits of each number in the Cloud API, and the recipients of numbers in test mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import changes
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows

STANDARD, HIGH = "STANDARD", "HIGH"  # levels of throughput
MAX_TEST_RECIPIENTS = 5


class TooManyTestRecipients(Exception):
    """The number has `MAX_TEST_RECIPIENTS` recipients. Remove one first."""


@dataclasses.dataclass(frozen=True, slots=True)
class CloudLimits:
    """Limits of one number. A number without a row has the defaults."""

    account: Annotated[str, types.key(20)]
    # Messaging limit of the number's own WABA, such as `TIER_250`; empty for that of the installation.
    tier: Annotated[str, types.key(16)] = ""
    throughput: Annotated[str, types.key(16)] = STANDARD  # `STANDARD` or `HIGH`
    # End of the upgrade to `HIGH`; 0 without one.
    upgrade_ends_at: types.UnixMilliseconds = 0
    is_test: bool = False  # whether only test recipients are sent to
    # `tier` and `throughput` as webhooks reported them last.
    announced_tier: Annotated[str, types.key(16)] = ""
    announced_throughput: Annotated[str, types.key(16)] = STANDARD
    # Position of the newest row of `cloud_reached` of the number's own WABA.
    reached: Annotated[int, sa.BigInteger] = 0
    # Time at which the messaging limit of the number's own WABA rises; 0 while too little of it is used.
    tier_rises_at: Annotated[int, types.milliseconds(), sa.DefaultClause("0")] = 0
    # Number of changes that webhooks reported.
    announcements: Annotated[int, sa.Integer, sa.DefaultClause("0")] = 0


@dataclasses.dataclass(frozen=True, slots=True)
class AnnouncedLimits:
    """Limits of one number as webhooks report them from now on."""

    account: str
    tier: str
    throughput: str
    announcements: int  # number of changes reported, with this one


@dataclasses.dataclass(frozen=True, slots=True)
class CloudTestRecipient:
    """Recipient that a number in test mode may send to."""

    account: Annotated[str, types.key(20)]
    recipient: Annotated[str, types.key(20)]


table = metadata.table_of(CloudLimits, "cloud_limits", key=("account",))
recipients = metadata.table_of(CloudTestRecipient, "cloud_test_recipients", key=("account", "recipient"))


async def find(connection: AsyncConnection, account: str) -> CloudLimits:
    """Find the limits of a number."""
    row = (await connection.execute(sa.select(table).where(table.c.account == account))).first()
    return CloudLimits(*row) if row is not None else CloudLimits(account)


async def list_limits(connection: AsyncConnection) -> Sequence[CloudLimits]:
    """List the limits of all numbers that have a row."""
    return [CloudLimits(*row) for row in await connection.execute(sa.select(table))]


async def lock(connection: AsyncConnection, account: str) -> CloudLimits:
    """Return the limits of a number, whose row is made if it is missing and locked until the transaction ends."""
    await add_rows(connection, table, [CloudLimits(account)])
    row = (await connection.execute(sa.select(table).where(table.c.account == account).with_for_update())).one()
    return CloudLimits(*row)


async def change(connection: AsyncConnection, account: str, values: Mapping[str, Any]) -> None:
    """Set columns of a number's limits. Processes apply them within a second."""
    await lock(connection, account)
    await connection.execute(table.update().where(table.c.account == account).values(values))
    await changes.note(connection, changes.CLOUD_LIMITS)


async def join(connection: AsyncConnection, account: str, owner: str) -> None:
    """Note that a new number starts with the messaging limit of its WABA, so that no webhook reports it as changed.

    owner: number that owns the WABA
    """
    await add_rows(connection, table, [CloudLimits(account, announced_tier=(await find(connection, owner)).tier)])


async def set_announced(connection: AsyncConnection, announced: Sequence[AnnouncedLimits]) -> None:
    """Store the limits that webhooks reported."""
    await add_rows(connection, table, [CloudLimits(each.account) for each in announced])
    for each in announced:
        values = {
            "announced_tier": each.tier,
            "announced_throughput": each.throughput,
            "announcements": each.announcements,
        }
        await connection.execute(table.update().where(table.c.account == each.account).values(values))


async def list_recipients(connection: AsyncConnection) -> Mapping[str, frozenset[str]]:
    """Return the test recipients by number."""
    found: dict[str, set[str]] = {}
    for row in await connection.execute(sa.select(recipients)):
        found.setdefault(row.account, set()).add(row.recipient)
    return {account: frozenset(numbers) for account, numbers in found.items()}


async def add_recipient(connection: AsyncConnection, account: str, recipient: str) -> None:
    """Add a test recipient; an existing one stays. Raises `TooManyTestRecipients`."""
    # The lock keeps concurrent calls from exceeding the limit.
    await lock(connection, account)
    present = (await list_recipients(connection)).get(account, frozenset())
    if recipient not in present and len(present) >= MAX_TEST_RECIPIENTS:
        raise TooManyTestRecipients
    await add_rows(connection, recipients, [CloudTestRecipient(account, recipient)])
    await changes.note(connection, changes.CLOUD_LIMITS)


async def remove_recipient(connection: AsyncConnection, account: str, recipient: str) -> bool:
    """Remove a test recipient. Returns whether it existed."""
    of_recipient = (recipients.c.account == account, recipients.c.recipient == recipient)
    deleted = await connection.execute(recipients.delete().where(*of_recipient))
    await changes.note(connection, changes.CLOUD_LIMITS)
    return deleted.rowcount > 0
