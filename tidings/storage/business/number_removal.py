"""Removal of a number from the installation: its shards first, then all its rows, page by page."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.business import (
    accounts,
    application_settings,
    base_keys,
    blocked_users,
    callback_changes,
    callback_history,
    callbacks,
    certificates,
    cloud_callbacks,
    cloud_calls,
    cloud_limits,
    cloud_reached,
    cloud_settings,
    cloud_uploads,
    cloud_users,
    contacts,
    cross_shard_messages,
    group_messages,
    groups,
    idempotency,
    identities,
    jobs,
    login_origins,
    media,
    media_downloads,
    media_providers,
    message_qr_codes,
    messages,
    numbers,
    profiles,
    quarantine,
    registrations,
    sender_keys,
    service_windows,
    sessions,
    shards,
    standins,
    stickerpacks,
    template_events,
    templates,
    undecrypted,
    upstream_ids,
    upstreams,
    users,
)
from tidings.storage.business.callbacks import CallbackState
from tidings.storage.business.numbers import BusinessNumber
from tidings.storage.database import execute_paged
from tidings.storage.row_lists import any_row_of, row_list

PAGE = 1000

# Modules whose tables have rows of a number, by the name of the column. `group_receipts` goes with its messages,
# `stickers` with their packs and `login_origins` with the users. Rows of `job_errors`, `audit_entries`,
# `callback_replays`, `callback_purges`, `job_purges`, `rate_limits` and `login_buckets` expire.
_MODULES = (
    application_settings,
    blocked_users,
    callback_changes,
    callback_history,
    callbacks,
    certificates,
    cloud_callbacks,
    cloud_settings,
    cloud_uploads,
    cloud_calls,
    cloud_limits,
    cloud_reached,
    cloud_users,
    contacts,
    cross_shard_messages,
    group_messages,
    groups,
    idempotency,
    identities,
    jobs,
    media,
    media_downloads,
    media_providers,
    message_qr_codes,
    messages,
    profiles,
    quarantine,
    registrations,
    sender_keys,
    service_windows,
    sessions,
    standins,
    stickerpacks,
    template_events,
    templates,
    undecrypted,
    upstream_ids,
    upstreams,
    users,
    accounts,
)


@dataclasses.dataclass(frozen=True, slots=True)
class PendingRows:
    """Rows of a number that have not reached their recipients."""

    jobs: int
    callbacks: int

    def __bool__(self) -> bool:
        return bool(self.jobs or self.callbacks)


async def begin(connection: AsyncConnection, number: BusinessNumber, *, drop: bool) -> PendingRows:
    """Delete the shards of a further number, which stops all writes for it, and mark it.

    Returns the pending rows. Without `drop` nothing is changed if there are any.
    """
    # The owners' commits write these rows, so none is in progress from here on.
    rows = sa.select(shards.table.c.shard).where(shards.of_block(number.shard_block)).with_for_update()
    await connection.execute(rows)
    waiting = await count_pending(connection, number)
    if waiting and not drop:
        return waiting
    await shards.delete_shards(connection, number.shard_block)
    await numbers.set_state(connection, number.number, numbers.REMOVING)
    return waiting


async def count_pending(connection: AsyncConnection, number: BusinessNumber) -> PendingRows:
    """Count the jobs and the callbacks that are to be posted."""
    block = number.shard_block
    of_jobs = sa.select(sa.func.count()).where(shards.of_block(block, jobs.table.c.shard))
    table = callbacks.table
    of_callbacks = sa.select(sa.func.count()).where(
        shards.of_block(block, table.c.shard), table.c.state == int(CallbackState.PENDING)
    )
    return PendingRows(
        (await connection.execute(of_jobs.select_from(jobs.table))).scalar_one(),
        (await connection.execute(of_callbacks.select_from(table))).scalar_one(),
    )


def list_tables() -> list[sa.Table]:
    """Return the tables with rows of a number, those of users last."""
    found = dict.fromkeys(table for module in _MODULES for table in _tables_of(module))
    return [*(table for table in found if table is not users.table), base_keys.BASE_KEYS.table, users.table]


async def delete_page(connection: AsyncConnection, number: str, table: sa.Table, after: Any = None) -> Any:
    """Delete at most `PAGE` rows of a number from one of `list_tables`.

    Returns the key to pass as `after` for the next page; None after the last page.
    """
    key = list(table.primary_key.columns)
    query = sa.select(*key).where(_owner(table) == number)
    if after is not None and len(key) == 1:
        # Without an index on the number, each page continues where the last one ended.
        query = query.where(key[0] > after)
    found: list[Any] = list(await connection.execute(query.order_by(*key).limit(PAGE)))
    if not found:
        return None
    firsts = [row[0] for row in found]
    for dependent, column in _DEPENDENT.get(table.name, ()):
        await connection.execute(dependent.delete().where(column.in_(firsts)))
    if len(key) > 1:
        delete = table.delete().where(any_row_of("rows", *key))
        await execute_paged(connection, delete, "rows", [tuple(row) for row in found], as_list=row_list)
    else:
        await connection.execute(table.delete().where(key[0].in_(firsts)))
    return firsts[-1] if len(found) == PAGE else None


# Tables whose rows go with those of another table, with the column that names it.
_DEPENDENT = {
    "messages": ((group_messages.receipts, group_messages.receipts.c.message_id),),
    "stickerpacks": ((stickerpacks.stickers, stickerpacks.stickers.c.pack),),
    "users": ((login_origins.table, login_origins.table.c.username),),
}


def _tables_of(module: Any) -> Iterator[sa.Table]:
    for value in vars(module).values():
        if isinstance(value, sa.Table) and {"account", "number"} & set(value.c.keys()) and value is not numbers.table:
            yield value


def _owner(table: sa.Table) -> sa.Column[Any]:
    """Return the column with the number that a row belongs to."""
    return next(table.c[name] for name in ("account", "number", "owner") if name in table.c)
