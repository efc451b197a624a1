"""Changes of templates that are to be reported to the callbacks of the Cloud API.

A row is written in the transaction of its change, and deleted in the transaction that stores its callback.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import callbacks
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows, any_of, delete_listed

# Kinds: values of the status, the quality or the category have changed; another category is announced; the components,
# whose events have no values, have changed.
STATUS, QUALITY, CATEGORY, NEXT_CATEGORY, COMPONENTS = "status", "quality", "category", "next_category", "components"
DELETED = "DELETED"  # value of `new_value` for a template that was deleted
# Keys of `info`: words about a status; time of an announced change, Unix seconds. New components, JSON, are in it by
# `COMPONENTS`.
TITLE, DESCRIPTION, RECOMMENDATION, AT = "title", "description", "recommendation", "at"
# Titles of the pauses of a template, in order.
PAUSE_TITLES = ("FIRST_PAUSE", "SECOND_PAUSE")


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateEvent:
    """Change of one value of a template."""

    # Event id of the callback that reports it.
    id: Annotated[str, types.key(64)]
    account: Annotated[str, types.key(20)]
    # Version of the account's templates that the change made.
    version: Annotated[int, sa.BigInteger()]
    # Position among the events of this version, from 0.
    position: int
    # One of the kinds above.
    kind: Annotated[str, types.key(16)]
    namespace: Annotated[str, types.key(64)]
    name: Annotated[str, types.key(512)]
    language: Annotated[str, types.key(16)]
    # Category of the template after the change.
    category: Annotated[str, types.key(32)]
    old_value: Annotated[str, types.key(32)]
    new_value: Annotated[str, types.key(32)]
    # Reason of a status as the Cloud API names it; None for a deletion.
    reason: Annotated[str | None, types.key(32)]
    # Operator's texts about a status, and the other values, by the keys above.
    info: Annotated[Mapping[str, str], types.json(dict[str, str])]
    created_at: types.UnixMilliseconds


table = metadata.table_of(
    TemplateEvent,
    "template_events",
    sa.Index("template_events_by_account", "account", "version", "position"),
    key=("id",),
)


_DELETE = table.delete().where(table.c.id.in_(any_of("ids")))


def event_id(account: str, version: int, position: int, created_at: int) -> str:
    """Return the event id of a change."""
    return callbacks.event_of(f"template {account} {version} {position} {created_at}".encode())


async def add(connection: AsyncConnection, events: Sequence[TemplateEvent]) -> None:
    """Add events. Those that exist stay unchanged."""
    await add_rows(connection, table, events)


async def delete(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Delete events that have a callback, or that no callback is to report."""
    await delete_listed(connection, _DELETE, "ids", ids)


async def list_events(connection: AsyncConnection, account: str, *, limit: int) -> Sequence[TemplateEvent]:
    """List the oldest events of an account in the order of the changes, at most `limit`."""
    rows = await connection.execute(
        sa.select(table).where(table.c.account == account).order_by(table.c.version, table.c.position).limit(limit)
    )
    return [TemplateEvent(*row) for row in rows]
