"""Apps that are subscribed to the Cloud API's webhooks of a WABA."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

table = sa.Table(
    "cloud_subscriptions",
    metadata,
    sa.Column("waba_id", types.key(20), primary_key=True),
    sa.Column("app_id", types.key(20), primary_key=True),
    sa.Column("created_at", types.milliseconds(), nullable=False),
    mysql_engine="InnoDB",
)


async def add(connection: AsyncConnection, waba_id: str, app_id: str, now: int) -> None:
    """Add a subscription; an existing one stays.

    now: Unix milliseconds
    """
    values = {"waba_id": waba_id, "app_id": app_id, "created_at": now}
    await connection.execute(insert_or_ignore(connection, table), [values])


async def remove(connection: AsyncConnection, waba_id: str, app_id: str) -> None:
    await connection.execute(table.delete().where(table.c.waba_id == waba_id, table.c.app_id == app_id))


async def exists(connection: AsyncConnection, waba_id: str, app_id: str) -> bool:
    query = sa.select(table.c.app_id).where(table.c.waba_id == waba_id, table.c.app_id == app_id)
    return (await connection.execute(query)).first() is not None
