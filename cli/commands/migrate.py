"""`tidings migrate`."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable

from cli import process
from tidings.runtime import settings
from tidings.storage import schema
from tidings.storage.database import Database

FAMILIES = ("business", "network")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None: the databases are named by the environment."""


def run(options: argparse.Namespace) -> int:
    """Upgrade the tables of the business and of the network, and say from what to what."""
    env = settings.Environment(os.environ)
    process.configure_logging("migrate", env)
    data_dir = settings.data_dir(env)
    databases = {family: settings.read_database(env, data_dir, family) for family in FAMILIES}
    env.check()
    asyncio.run(upgrade(databases, print))
    return 0


async def upgrade(databases: dict[str, settings.DatabaseSettings], say: Callable[[str], None]) -> None:
    """Make the databases that are missing, then upgrade each; says of each what changed."""
    for family, where in databases.items():
        await schema.create_database(where.url)
        database = Database(where, family)
        try:
            before, after = await schema.upgrade(database)
        finally:
            await database.close()
        change = f"{before or 'empty'} → {after}" if before != after else f"{after}, nothing to do"
        say(f"{family:<9} {change}  ({settings.describe_url(where.url)})")
