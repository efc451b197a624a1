"""The business's own copy of each group that it is in, as the network last described it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_update

ID_LENGTH = 40  # characters

table = sa.Table(
    "business_groups",
    metadata,
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("id", types.key(ID_LENGTH), primary_key=True),
    sa.Column("subject", types.text(255), nullable=False),
    sa.Column("creator", types.key(20), nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("participants", types.long_text(), nullable=False),
    sa.Column("has_icon", sa.Boolean, nullable=False),
    sa.Column("is_member", sa.Boolean, nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """One group.

    created_at:   Unix seconds.
    epoch:        grows with each participant that joins or goes; 0 while only the id is known.
    participants: in the order in which they joined, each with whether they are an admin.
    is_member:    whether the business is in it; what is known of one that it left stays for messages on their way.
    """

    account: str
    id: str
    subject: str
    creator: str
    created_at: int
    epoch: int
    participants: tuple[tuple[str, bool], ...]
    has_icon: bool = False
    is_member: bool = True


async def save(connection: AsyncConnection, groups: Sequence[Group]) -> None:
    """Keep groups, new ones or over what was known of them."""
    if groups:
        columns = tuple(column.name for column in table.columns if not column.primary_key)
        await connection.execute(
            insert_or_update(connection, table, ("account", "id"), columns),
            [
                {
                    "account": g.account,
                    "id": g.id,
                    "subject": g.subject,
                    "creator": g.creator,
                    "created_at": g.created_at,
                    "epoch": g.epoch,
                    "participants": msgspec.json.encode(g.participants).decode(),
                    "has_icon": g.has_icon,
                    "is_member": g.is_member,
                }
                for g in groups
            ],
        )


async def list_groups(connection: AsyncConnection, account: str) -> Sequence[Group]:
    """Every group of an account, those that it left included, in the order of their ids."""
    rows = await connection.execute(sa.select(table).where(table.c.account == account).order_by(table.c.id))
    return [
        Group(
            row.account,
            row.id,
            row.subject,
            row.creator,
            row.created_at,
            row.epoch,
            msgspec.json.decode(row.participants, type=tuple[tuple[str, bool], ...]),
            bool(row.has_icon),
            bool(row.is_member),
        )
        for row in rows
    ]
