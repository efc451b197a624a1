"""Management calls of the Cloud API by minute, counted over the last hour."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import cloud_limits
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_update

WINDOW = 60  # minutes


@dataclasses.dataclass(frozen=True, slots=True)
class CallCount:
    """Management calls of one WABA in one minute."""

    account: Annotated[str, types.key(20)]  # number that owns the WABA
    minute: int  # minutes since 1970
    calls: int


table = metadata.table_of(CallCount, "cloud_calls", key=("account", "minute"))


@dataclasses.dataclass(frozen=True, slots=True)
class CallsOfHour:
    """Result of counting a call."""

    calls: int  # within the last 60 minutes, this one among them if it is admitted
    wait: int  # minutes until a call is admitted again; 0 for a call that is admitted


async def count(connection: AsyncConnection, account: str, *, limit: int, now: int) -> CallsOfHour:
    """Count a call unless the last hour has `limit` of them.

    now: Unix milliseconds
    """
    # Calls at several Webapps are counted one after the other.
    await cloud_limits.lock(connection, account)
    minute = now // 60_000
    await connection.execute(table.delete().where(table.c.account == account, table.c.minute <= minute - WINDOW))
    rows = await connection.execute(sa.select(table.c.minute, table.c.calls).where(table.c.account == account))
    by_minute: dict[int, int] = {row.minute: row.calls for row in rows}
    calls = sum(by_minute.values())
    if calls >= limit:
        return CallsOfHour(calls, max(min(by_minute) + WINDOW - minute, 1))
    row = {"account": account, "minute": minute, "calls": by_minute.get(minute, 0) + 1}
    await connection.execute(insert_or_update(connection, table), [row])
    return CallsOfHour(calls + 1, 0)
