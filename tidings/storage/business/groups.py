"""Business's copy of each group that it is in, as the network last described it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import save_rows

# Maximum length of a group id, characters.
ID_LENGTH = 40


@dataclasses.dataclass(frozen=True, slots=True)
class StoredGroup:
    """Group, including groups that the business has left."""

    account: Annotated[str, types.key(20)]
    id: Annotated[str, types.key(ID_LENGTH)]
    subject: Annotated[str, types.text(255)]
    creator: Annotated[str, types.key(20)]
    # Unix seconds.
    created_at: Annotated[int, sa.BigInteger]
    # Increases with each participant that joins or leaves; 0 if only the id is known.
    epoch: Annotated[int, sa.BigInteger]
    # Number of each participant and whether it is an admin, in the order in which they joined.
    participants: Annotated[tuple[tuple[str, bool], ...], types.json(tuple[tuple[str, bool], ...])]
    has_icon: bool = False
    # False once the business has left. The row is kept for messages that are still on their way.
    is_member: bool = True


table = metadata.table_of(StoredGroup, "business_groups", key=("account", "id"))


async def save(connection: AsyncConnection, groups: Sequence[StoredGroup]) -> None:
    """Save groups, new or known ones."""
    await save_rows(connection, table, groups)


async def list_groups(connection: AsyncConnection, account: str) -> Sequence[StoredGroup]:
    """List all groups of an account by id, including those that it has left."""
    rows = await connection.execute(sa.select(table).where(table.c.account == account).order_by(table.c.id))
    return [StoredGroup(*row) for row in rows]
