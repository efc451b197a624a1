"""Preferences of the numbers that a page shows."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import save_rows
from tidings.storage.handset.tables import metadata


@dataclasses.dataclass(frozen=True, slots=True)
class PreferencesRow:
    """Preferences of one number."""

    number: Annotated[str, types.key(20)]
    # Whether the page runs the number.
    is_open: bool = True
    # Whether the phone is switched on.
    is_online: bool = True
    # Whether reading a chat sends the receipt `read`.
    sends_read: bool = True
    # Name in the profile; empty for none.
    name: Annotated[str, types.text(128)] = ""
    # Numbers that the phone blocks.
    blocked: Annotated[tuple[str, ...], types.words()] = ()


preferences = metadata.table_of(PreferencesRow, "handset_preferences", key=("number",))


async def save(connection: AsyncConnection, row: PreferencesRow) -> None:
    """Save the preferences of a number."""
    await save_rows(connection, preferences, [row])


async def find(connection: AsyncConnection, number: str) -> PreferencesRow | None:
    """Return the preferences of a number; `None` if it has none yet."""
    row = (await connection.execute(sa.select(preferences).where(preferences.c.number == number))).first()
    return PreferencesRow(*row) if row is not None else None


async def list_open(connection: AsyncConnection, limit: int) -> list[PreferencesRow]:
    """List the preferences of the numbers that the page runs, by number."""
    wanted = sa.select(preferences).where(preferences.c.is_open).order_by(preferences.c.number).limit(limit)
    return [PreferencesRow(*row) for row in await connection.execute(wanted)]
