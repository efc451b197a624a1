"""Numbers that stand for users whose number the real Cloud API does not show, with their business-scoped ids.

A row is never deleted while the number of the business belongs to the installation: a program of v1 may send to it at
any time. So there is one row, of about 100 bytes, for each such user who has ever written. It changes only when the
user gets another id.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, select_paged
from tidings.storage.rows import write_instances, write_rows


@dataclasses.dataclass(frozen=True, slots=True)
class StandIn:
    """Number that stands for one user."""

    account: Annotated[str, types.key(20)]
    number: Annotated[str, types.key(20)]
    user_id: Annotated[str, types.key(160)]


table = metadata.table_of(
    StandIn,
    "standins",
    sa.Index("standins_by_user", "account", "user_id", unique=True),
    key=("account", "number"),
)

_other = table.alias("other")
# MySQL refuses a subquery on the changed table unless it is materialised: DISTINCT makes it so.
_TAKEN = (
    sa.select(_other.c.number)
    .where(_other.c.account == sa.bindparam("of_account"), _other.c.user_id == sa.bindparam("to_user"))
    .distinct()
    .subquery("taken")
)
_MOVE = (
    table.update()
    .where(
        table.c.account == sa.bindparam("of_account"),
        table.c.number == sa.bindparam("of_number"),
        ~sa.select(_TAKEN.c.number).exists(),
    )
    .values(user_id=sa.bindparam("to_user"))
)
_OF = sa.select(table).where(table.c.account == sa.bindparam("account"))
_BY_NUMBER = _OF.where(table.c.number.in_(any_of("numbers")))
_BY_USER = _OF.where(table.c.user_id.in_(any_of("user_ids")))


async def add(connection: AsyncConnection, account: str, rows: Sequence[StandIn]) -> None:
    """Add rows of one account. Existing ones may be added again.

    The database refuses a number that stands for another user, and a second number of a user.
    """
    known = set(await list_by_number(connection, account, [row.number for row in rows]))
    new = [row for row in dict.fromkeys(rows) if row not in known]
    if new:
        await write_instances(connection, table.insert(), new)


async def move(connection: AsyncConnection, account: str, rows: Sequence[StandIn]) -> None:
    """Let issued numbers of one account stand for other users: of two rows of a number for the last. May be repeated.

    A number stays with its user if the other one has a number.
    """
    last = {row.number: row.user_id for row in rows}
    moved = [{"of_account": account, "of_number": number, "to_user": user_id} for number, user_id in last.items()]
    await write_rows(connection, _MOVE, moved)


async def list_by_number(connection: AsyncConnection, account: str, numbers: Sequence[str]) -> Sequence[StandIn]:
    """List the rows of those of the numbers that stand for a user."""
    return [StandIn(*row) for row in await select_paged(connection, _BY_NUMBER, "numbers", numbers, account=account)]


async def list_by_user(connection: AsyncConnection, account: str, user_ids: Sequence[str]) -> Sequence[StandIn]:
    """List the rows of those of the users that have one."""
    return [StandIn(*row) for row in await select_paged(connection, _BY_USER, "user_ids", user_ids, account=account)]
