"""Rows whose content is sealed under a key of the installation: read all at once, replaced one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.business import (
    accounts,
    application_settings,
    certificates,
    cloud_callbacks,
    media_providers,
    registrations,
)

CERTIFICATE = "certificate"
PROVIDER = "provider"
CLOUD_CALLBACK = "cloud callback"
WEBHOOK_URL = "webhook url"
_SEALED_CERTIFICATES = (
    certificates.EXTERNAL,
    certificates.SELF_SIGNED,
    certificates.WEBHOOK_SECRETS,
    certificates.CLOUD_USER_KEY,
    certificates.CLOUD_UPSTREAM,
)


@dataclasses.dataclass(frozen=True, slots=True)
class SealedRow:
    """Row sealed under the settings key. A webhook URL may be unsealed, if an earlier release stored it."""

    # `CERTIFICATE`, `PROVIDER`, `CLOUD_CALLBACK` or `WEBHOOK_URL`.
    kind: str
    account: str
    # Kind of the certificate, name of the provider, or id of the callback's object; empty for a webhook URL.
    name: str
    # As stored; the text of a webhook URL in UTF-8.
    content: bytes = dataclasses.field(repr=False)
    # Version of the settings that contain a webhook URL; 0 for other kinds.
    version: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class DataKey:
    """Wrapped data key of a number."""

    number: str
    # True for a registration whose outcome is unknown.
    pending: bool
    wrapped: bytes = dataclasses.field(repr=False)


async def list_settings(connection: AsyncConnection) -> Sequence[SealedRow]:
    """List everything sealed under the settings key, of all accounts."""
    table = certificates.table
    query = sa.select(table).where(table.c.kind.in_(_SEALED_CERTIFICATES))
    found = [SealedRow(CERTIFICATE, r.account, r.kind, bytes(r.content)) for r in await connection.execute(query)]
    table = media_providers.table
    query = sa.select(table.c.account, table.c.name, table.c.config)
    found += [SealedRow(PROVIDER, r.account, r.name, bytes(r.config)) for r in await connection.execute(query)]
    called = await connection.execute(sa.select(cloud_callbacks.table))
    found += [SealedRow(CLOUD_CALLBACK, r.account, r.node_id, bytes(r.content)) for r in called]
    for row in await connection.execute(sa.select(application_settings.table)):
        url = _webhook(row.document).get("url", "")
        if url:
            found.append(SealedRow(WEBHOOK_URL, row.account, "", url.encode(), row.version))
    return found


async def replace_settings(connection: AsyncConnection, row: SealedRow, content: bytes) -> bool:
    """Replace the content of a row. Returns false and changes nothing when the row has changed since it was read."""
    if row.kind == WEBHOOK_URL:
        return await _replace_url(connection, row, content.decode())
    if row.kind == CERTIFICATE:
        table, column, name = certificates.table, certificates.table.c.content, certificates.table.c.kind
    elif row.kind == CLOUD_CALLBACK:
        table, column, name = cloud_callbacks.table, cloud_callbacks.table.c.content, cloud_callbacks.table.c.node_id
    else:
        table, column, name = media_providers.table, media_providers.table.c.config, media_providers.table.c.name
    changed = await connection.execute(
        table.update()
        .where(table.c.account == row.account, name == row.name, column == row.content)
        .values({column.name: content})
    )
    return changed.rowcount > 0


async def list_data_keys(connection: AsyncConnection) -> Sequence[DataKey]:
    """List everything wrapped under the master key."""
    table, pending = accounts.accounts, registrations.pending
    found = await connection.execute(sa.select(table.c.number, table.c.data_key))
    begun = await connection.execute(sa.select(pending.c.account, pending.c.data_key))
    return [
        *(DataKey(row.number, False, bytes(row.data_key)) for row in found),
        *(DataKey(row.account, True, bytes(row.data_key)) for row in begun),
    ]


async def replace_data_key(connection: AsyncConnection, key: DataKey, wrapped: bytes) -> bool:
    """Replace a wrapped data key. Returns false and changes nothing when it has changed since it was read."""
    if key.pending:
        table = registrations.pending
        update = table.update().where(table.c.account == key.number, table.c.data_key == key.wrapped)
    else:
        table = accounts.accounts
        update = table.update().where(table.c.number == key.number, table.c.data_key == key.wrapped)
    return (await connection.execute(update.values(data_key=wrapped))).rowcount > 0


async def _replace_url(connection: AsyncConnection, row: SealedRow, url: str) -> bool:
    table = application_settings.table
    mine = (table.c.account == row.account) & (table.c.version == row.version)
    document = (await connection.execute(sa.select(table.c.document).where(mine).with_for_update())).scalar()
    if document is None:
        return False
    whole = msgspec.json.decode(document, type=dict[str, Any])
    whole["webhooks"]["url"] = url
    # The settings themselves are unchanged, so their version stays.
    await connection.execute(table.update().where(mine).values(document=msgspec.json.encode(whole).decode()))
    return True


def _webhook(document: str) -> dict[str, Any]:
    found = msgspec.json.decode(document, type=dict[str, Any]).get("webhooks")
    return found if isinstance(found, dict) else {}
