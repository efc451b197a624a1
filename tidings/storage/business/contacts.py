"""Contact cache: whether numbers are registered on the network, and when that was last checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, save_rows, select_paged


@dataclasses.dataclass(frozen=True, slots=True)
class StoredContact:
    """Result of the last check of one number."""

    account: Annotated[str, types.key(20)]
    wa_id: Annotated[str, types.key(20)]
    registered: bool
    # Unix milliseconds of the check.
    checked_at: types.UnixMilliseconds


table = metadata.table_of(StoredContact, "contacts", key=("account", "wa_id"))


class EarliestChecks(NamedTuple):
    """Times of the oldest checks whose results are still used, by the result."""

    # For registered numbers, Unix milliseconds.
    valid: int
    # For numbers that are not registered, Unix milliseconds.
    invalid: int


async def save(connection: AsyncConnection, contacts: Sequence[StoredContact]) -> None:
    """Save the results of a check, and overwrite earlier ones."""
    # Several shards may save the same contacts at the same time. All of them lock the rows in the same order.
    await save_rows(connection, table, sorted(contacts, key=attrgetter("account", "wa_id")))


_CHECKED = sa.select(table).where(
    table.c.account == sa.bindparam("account"),
    table.c.checked_at >= sa.case((table.c.registered, sa.bindparam("valid")), else_=sa.bindparam("invalid")),
)
_THESE = _CHECKED.where(table.c.wa_id.in_(any_of("wa_ids")))
_PAGE = _CHECKED.where(table.c.wa_id > sa.bindparam("after")).order_by(table.c.wa_id).limit(sa.bindparam("limit"))


async def list_checked(
    connection: AsyncConnection, account: str, wa_ids: Sequence[str], *, since: EarliestChecks
) -> Sequence[StoredContact]:
    """List those of the given numbers that were checked recently enough."""
    rows = await select_paged(connection, _THESE, "wa_ids", wa_ids, account=account, **since._asdict())
    return [StoredContact(*row) for row in rows]


async def list_page(
    connection: AsyncConnection, account: str, *, after: str, since: EarliestChecks, limit: int
) -> Sequence[StoredContact]:
    """List a page of numbers after `after` that were checked recently enough, in their order."""
    values = {"account": account, **since._asdict(), "after": after, "limit": limit}
    return [StoredContact(*row) for row in await connection.execute(_PAGE, values)]


async def clear(connection: AsyncConnection, account: str) -> None:
    """Delete all contacts of an account."""
    await connection.execute(table.delete().where(table.c.account == account))


async def count_by_registration(connection: AsyncConnection, account: str = "") -> Mapping[bool, int]:
    """Count the contacts of a number that are registered and those that are not. Reads the whole table.

    account: empty for all numbers
    """
    query = sa.select(table.c.registered, sa.func.count()).group_by(table.c.registered)
    rows = await connection.execute(query.where(table.c.account == account) if account else query)
    return {bool(row[0]): row[1] for row in rows}
