"""`tidings number limits` and `recipients`: the limits of a number in the Cloud API, and its test recipients."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any

from cli import choices, guard
from tidings.storage import database_clock
from tidings.storage.business import cloud_limits, numbers
from tidings.storage.business.cloud_limits import HIGH, MAX_TEST_RECIPIENTS, STANDARD, CloudLimits
from tidings.storage.database import Connection, Database
from tidings.wire import addresses, phone_numbers
from tidings.wire.cloud.tiers import TIERS

_DEFAULT = "default"
MAX_UPGRADE = 60  # seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the number and the options."""
    parser.add_argument("number", metavar="NUMBER", help="number of this installation")
    parser.add_argument(
        "--messaging",
        choices=(*TIERS, _DEFAULT),
        metavar="TIER",
        help=f"messaging limit of its WABA: {', '.join(TIERS)}, or {_DEFAULT} for TIDINGS_CLOUD_MESSAGING_TIER",
    )
    parser.add_argument(
        "--throughput",
        choices=("standard", "high"),
        help="TIDINGS_MESSAGES_RATE, or 1,000 messages a second after an upgrade",
    )
    parser.add_argument(
        "--upgrade-seconds",
        type=int,
        choices=range(MAX_UPGRADE + 1),
        metavar="SECONDS",
        help=f"with --throughput high: time for which messages are refused during the upgrade (default: {MAX_UPGRADE})",
    )
    parser.add_argument("--test", choices=("on", "off"), help="test mode, in which only its recipients are sent to")


def add_recipient_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the number and the options of `recipients`."""
    parser.add_argument("number", metavar="NUMBER", help="number of this installation")
    parser.add_argument("--add", metavar="RECIPIENT", help=f"recipient to add; {MAX_TEST_RECIPIENTS} at most")
    parser.add_argument("--remove", metavar="RECIPIENT", help="recipient to remove")


async def run_recipients(database: Database, number: str, options: argparse.Namespace) -> int:
    """Remove and add a test recipient, and print all. The number must exist."""
    added, removed = (_recipient(text) if text else "" for text in (options.add, options.remove))

    async def work(connection: Connection) -> Collection[str]:
        if removed and not await cloud_limits.remove_recipient(connection, number, removed):
            raise guard.CommandFailure(f"{removed} is no test recipient of {number}")
        if added:
            try:
                await cloud_limits.add_recipient(connection, number, added)
            except cloud_limits.TooManyTestRecipients:
                raise guard.CommandFailure(
                    f"{number} has {MAX_TEST_RECIPIENTS} test recipients, which is the limit: remove one first"
                ) from None
        return (await cloud_limits.list_recipients(connection)).get(number, ())

    found = await database.commit(work)
    for recipient in sorted(found):
        print(recipient)
    print(f"{len(found)} of at most {MAX_TEST_RECIPIENTS} test recipients")
    return 0


def _recipient(text: str) -> str:
    found = phone_numbers.normalise(text)
    if found is None or not addresses.is_wa_id(found):
        raise guard.CommandFailure(f"{text[:40]!r} is no phone number: give country code and number")
    return found


async def run(database: Database, number: str, options: argparse.Namespace) -> int:
    """Change the limits that are given as options, and print all. The number must exist."""
    if options.upgrade_seconds is not None and options.throughput != "high":
        raise guard.CommandFailure("--upgrade-seconds has an effect only together with --throughput high: add it")

    async def work(connection: Connection) -> tuple[CloudLimits, CloudLimits]:
        owner = await numbers.find_waba_owner(connection, number)
        if options.messaging is not None:
            tier = "" if options.messaging == _DEFAULT else options.messaging
            await cloud_limits.change(connection, owner, {"tier": tier, "tier_rises_at": 0})
        present = await cloud_limits.find(connection, number)
        values = _changes(options, present, await database_clock.read(connection))
        if values:
            await cloud_limits.change(connection, number, values)
        return await cloud_limits.find(connection, number), await cloud_limits.find(connection, owner)

    found, of_waba = await database.commit(work)
    shared = f", with {of_waba.account}" if of_waba.account != number else ""
    rise = f", rises at {choices.utc(of_waba.tier_rises_at)}" if of_waba.tier_rises_at else ""
    print(f"messaging   {of_waba.tier or f'{_DEFAULT} (TIDINGS_CLOUD_MESSAGING_TIER)'}{shared}{rise}")
    upgrade = f", upgrade until {choices.utc(found.upgrade_ends_at)}" if found.upgrade_ends_at else ""
    print(f"throughput  {found.throughput.lower()}{upgrade}")
    print(f"test mode   {'on' if found.is_test else 'off'}")
    return 0


def _changes(options: argparse.Namespace, present: CloudLimits, now: int) -> dict[str, Any]:
    """Return the columns of the number to set. A number with high throughput is not upgraded again.

    now: by the clock of the database, Unix milliseconds
    """
    values: dict[str, Any] = {}
    if options.throughput == "high" and present.throughput != HIGH:
        seconds = MAX_UPGRADE if options.upgrade_seconds is None else options.upgrade_seconds
        values |= {"throughput": HIGH, "upgrade_ends_at": (now // 1000 + seconds) * 1000}
    elif options.throughput == "standard":
        values |= {"throughput": STANDARD, "upgrade_ends_at": 0}
    if options.test is not None:
        values["is_test"] = options.test == "on"
    return values
