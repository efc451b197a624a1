"""Settings of numbers that only the Cloud API has: a JSON document for each kind."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import save_rows

# Kinds of settings, named as the edges of the API.
SETTINGS = "settings"
AUTOMATION = "conversational_automation"
COMMERCE = "whatsapp_commerce_settings"


@dataclasses.dataclass(frozen=True, slots=True)
class CloudSettingsRow:
    """Settings of one kind."""

    account: Annotated[str, types.key(20)]
    kind: Annotated[str, types.key(64)]
    # Fields are named as in the API.
    content: Annotated[dict[str, Any], types.json(dict[str, Any])]


table = metadata.table_of(CloudSettingsRow, "cloud_settings", key=("account", "kind"))


async def find(connection: AsyncConnection, account: str, kind: str) -> dict[str, Any]:
    """Find the settings of a kind; empty when none are set."""
    query = sa.select(table.c.content).where(table.c.account == account, table.c.kind == kind)
    return (await connection.execute(query)).scalar() or {}


async def put(connection: AsyncConnection, row: CloudSettingsRow) -> None:
    """Set the settings of a kind, in place of earlier ones."""
    await save_rows(connection, table, [row])


async def shows_identity(connection: AsyncConnection, account: str) -> bool:
    """Return whether webhooks name the identity of a message's sender."""
    found = (await find(connection, account, SETTINGS)).get("user_identity_change")
    return isinstance(found, dict) and bool(found.get("enable_identity_key_check"))
