"""Ids of users in the Cloud API (BSUID), with the numbers that they stand for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows


@dataclasses.dataclass(frozen=True, slots=True)
class CloudUser:
    """User whose id a webhook has named."""

    # Number that owns the WABA: users of all its numbers have the same ids.
    account: Annotated[str, types.key(20)]
    user_id: Annotated[str, types.key(40)]
    peer: Annotated[str, types.key(20)]


table = metadata.table_of(CloudUser, "cloud_users", key=("account", "user_id"))


async def add(connection: AsyncConnection, users: Sequence[CloudUser]) -> None:
    """Add users. Existing ones stay unchanged."""
    await add_rows(connection, table, users)


async def find_peer(connection: AsyncConnection, account: str, user_id: str) -> str:
    """Find the number of a user; empty for an unknown id."""
    of_user = (table.c.account == account, table.c.user_id == user_id)
    return (await connection.execute(sa.select(table.c.peer).where(*of_user))).scalar() or ""
