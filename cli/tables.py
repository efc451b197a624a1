"""Creation and upgrade of the tables of the business and of the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidings.installation.settings import DatabaseSettings, describe_url
from tidings.storage import schema
from tidings.storage.database import Database


async def upgrade(databases: Mapping[str, DatabaseSettings], print_line: Callable[[str], None]) -> None:
    """Create missing databases, then upgrade each.

    databases: settings by family of tables.
    print_line: called with one line per family, with the revisions before and after.
    """
    for family, where in databases.items():
        await schema.create_database(where)
        database = Database(where, family)
        try:
            before, after = await schema.upgrade(database)
        finally:
            await database.close()
        change = f"{before or 'empty'} → {after}" if before != after else f"{after}, nothing to do"
        print_line(f"{family:<9} {change}  ({describe_url(where.url)})")
