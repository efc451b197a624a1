"""`tidings number limits`: shows and changes the limits of a number in the Cloud API."""

from __future__ import annotations

import argparse
from typing import Any

from tidings.storage.business import cloud_limits
from tidings.storage.business.cloud_limits import CloudLimits
from tidings.storage.database import Connection, Database
from tidings.wire.cloud.tiers import TIERS

_DEFAULT = "default"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the number and the options."""
    parser.add_argument("number", metavar="NUMBER", help="number of this installation")
    parser.add_argument(
        "--messaging",
        choices=(*TIERS, _DEFAULT),
        metavar="TIER",
        help=f"messaging limit: {', '.join(TIERS)}, or {_DEFAULT} for TIDINGS_CLOUD_MESSAGING_TIER",
    )


async def run(database: Database, number: str, options: argparse.Namespace) -> int:
    """Change the limits that are given as options, and print all. The number must exist."""
    values = _changes(options)

    async def work(connection: Connection) -> CloudLimits:
        if values:
            await cloud_limits.change(connection, number, values)
        return await cloud_limits.find(connection, number)

    found = await database.commit(work)
    print(f"messaging   {found.tier or f'{_DEFAULT} (TIDINGS_CLOUD_MESSAGING_TIER)'}")
    return 0


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    """Return the columns to set."""
    values: dict[str, Any] = {}
    if options.messaging is not None:
        values["tier"] = "" if options.messaging == _DEFAULT else options.messaging
    return values
