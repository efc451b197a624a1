"""Rows whose content is sealed under a key of the installation: read all together, replaced one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.business import accounts, application_settings, certificates, media_providers, registrations

CERTIFICATE = "certificate"
PROVIDER = "provider"
WEBHOOK_URL = "webhook url"
_SEALED_CERTIFICATES = (certificates.EXTERNAL, certificates.SELF_SIGNED, certificates.WEBHOOK_SECRETS)


@dataclasses.dataclass(frozen=True, slots=True)
class SealedRow:
    """kind: one of the above; name: of the certificate's kind or the provider; content: as it is stored, the text of a
    webhook's address in UTF-8. It may be unsealed, of an earlier release, if it is that."""

    kind: str
    account: str
    name: str
    content: bytes = dataclasses.field(repr=False)
    version: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class DataKey:
    """The wrapped data key of a number, registered or about to be."""

    number: str
    pending: bool
    wrapped: bytes = dataclasses.field(repr=False)


async def list_settings(connection: AsyncConnection) -> Sequence[SealedRow]:
    """Everything that is sealed under the settings key, of every account."""
    table = certificates.table
    query = sa.select(table).where(table.c.kind.in_(_SEALED_CERTIFICATES))
    found = [SealedRow(CERTIFICATE, r.account, r.kind, bytes(r.content)) for r in await connection.execute(query)]
    table = media_providers.table
    query = sa.select(table.c.account, table.c.name, table.c.config)
    found += [SealedRow(PROVIDER, r.account, r.name, bytes(r.config)) for r in await connection.execute(query)]
    for row in await connection.execute(sa.select(application_settings.table)):
        url = _webhook(row.document).get("url", "")
        if url:
            found.append(SealedRow(WEBHOOK_URL, row.account, "", url.encode(), row.version))
    return found


async def replace_settings(connection: AsyncConnection, row: SealedRow, content: bytes) -> bool:
    """Store another content for a row; false, and nothing is changed, when it is not as it was read any more."""
    if row.kind == WEBHOOK_URL:
        return await _replace_url(connection, row, content.decode())
    if row.kind == CERTIFICATE:
        table, column, name = certificates.table, certificates.table.c.content, certificates.table.c.kind
    else:
        table, column, name = media_providers.table, media_providers.table.c.config, media_providers.table.c.name
    changed = await connection.execute(
        table.update()
        .where(table.c.account == row.account, name == row.name, column == row.content)
        .values({column.name: content})
    )
    return changed.rowcount > 0


async def list_data_keys(connection: AsyncConnection) -> Sequence[DataKey]:
    """Everything that is wrapped under the master key."""
    table, pending = accounts.accounts, registrations.pending
    found = await connection.execute(sa.select(table.c.number, table.c.data_key))
    begun = await connection.execute(sa.select(pending.c.account, pending.c.data_key))
    return [
        *(DataKey(row.number, False, bytes(row.data_key)) for row in found),
        *(DataKey(row.account, True, bytes(row.data_key)) for row in begun),
    ]


async def replace_data_key(connection: AsyncConnection, key: DataKey, wrapped: bytes) -> bool:
    """Store another wrapping of a data key; false, and nothing is changed, when it is not as it was read any more."""
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
    # The settings are the same ones: their version stays.
    await connection.execute(table.update().where(mine).values(document=msgspec.json.encode(whole).decode()))
    return True


def _webhook(document: str) -> dict[str, Any]:
    found = msgspec.json.decode(document, type=dict[str, Any]).get("webhooks")
    return found if isinstance(found, dict) else {}
