"""The tables of the business and of the network, made and brought up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidings.runtime.settings import DatabaseSettings, describe_url
from tidings.storage import schema
from tidings.storage.database import Database


async def upgrade(databases: Mapping[str, DatabaseSettings], say: Callable[[str], None]) -> None:
    """Make the databases that are missing, then upgrade each; says of each what changed."""
    for family, where in databases.items():
        await schema.create_database(where)
        database = Database(where, family)
        try:
            before, after = await schema.upgrade(database)
        finally:
            await database.close()
        change = f"{before or 'empty'} → {after}" if before != after else f"{after}, nothing to do"
        say(f"{family:<9} {change}  ({describe_url(where.url)})")
