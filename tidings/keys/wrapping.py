"""Sealing of rows under the current key of an installation, row by row."""

from __future__ import annotations

from collections.abc import Callable

from tidings.aio import crashpoints
from tidings.e2ee import installation_secrets
from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret, cloud_callback_label, provider_label
from tidings.e2ee.master_keys import MasterKeys
from tidings.storage.business import certificates, sealed_rows
from tidings.storage.business.sealed_rows import DataKey, SealedRow
from tidings.storage.database import Database

# Id of a number's only data key.
DATA_KEY_ID = 1

# Receives the number of rows done and the number of all rows.
Progress = Callable[[int, int], None]


def _ignore_progress(done: int, total: int) -> None:
    pass


async def wrap_data_keys(database: Database, masters: MasterKeys, progress: Progress = _ignore_progress) -> int:
    """Wrap every data key under the current master key, one commit per key. Returns the number of keys wrapped.

    Calls `progress(done, total)` after each key. Raises `UnknownMasterKey` and `CorruptState`.
    """
    async with database.reading() as connection:
        found = await sealed_rows.list_data_keys(connection)
    left = [key for key in found if not masters.needs_current(key.wrapped)]
    for done, key in enumerate(left, 1):
        wrapped = masters.wrap(DATA_KEY_ID, masters.unwrap(DATA_KEY_ID, key.wrapped))
        await _replace_key(database, key, wrapped)
        crashpoints.reach(crashpoints.AFTER_REWRAPPED_ROW)
        progress(done, len(left))
    return len(left)


async def seal_settings(
    database: Database, safe: SecretSealer, progress: Progress = _ignore_progress, *, unsealed_only: bool = False
) -> int:
    """Seal all secret settings of the business under the current settings key, in the way of `wrap_data_keys`.

    Rows that cannot be opened stay unchanged; the business has to set them again. `unsealed_only` skips rows that are
    sealed under any key.
    """
    async with database.reading() as connection:
        found = await sealed_rows.list_settings(connection)
    left = [row for row in found if not is_current(safe, row) and not (unsealed_only and is_sealed(row))]
    count = 0
    for done, row in enumerate(left, 1):
        try:
            content = _sealed(safe, row, open_row(safe, row))
        except UnreadableSecret:
            continue
        await _replace_row(database, row, content)
        crashpoints.reach(crashpoints.AFTER_REWRAPPED_ROW)
        count += 1
        progress(done, len(left))
    return count


def is_sealed(row: SealedRow) -> bool:
    """Return whether the row is sealed. A webhook URL stored by an earlier release is not."""
    return row.kind != sealed_rows.WEBHOOK_URL or installation_secrets.is_sealed(row.content.decode())


def open_row(safe: SecretSealer, row: SealedRow) -> bytes:
    """Open the content of a row. Raises `UnreadableSecret`."""
    if row.kind == sealed_rows.WEBHOOK_URL:
        return safe.open_text(row.account, installation_secrets.WEBHOOK_URL, row.content.decode()).encode()
    return safe.open(row.account, _name(row), row.content)


def _sealed(safe: SecretSealer, row: SealedRow, content: bytes) -> bytes:
    if row.kind == sealed_rows.WEBHOOK_URL:
        return safe.seal_text(row.account, installation_secrets.WEBHOOK_URL, content.decode()).encode()
    return safe.seal(row.account, _name(row), content)


def is_current(safe: SecretSealer, row: SealedRow) -> bool:
    """Return whether the row is sealed under the current settings key."""
    if row.kind == sealed_rows.WEBHOOK_URL:
        return safe.text_needs_current(row.content.decode())
    return safe.needs_current(row.content)


def _name(row: SealedRow) -> str:
    if row.kind == sealed_rows.PROVIDER:
        return provider_label(row.name)
    if row.kind == sealed_rows.CLOUD_CALLBACK:
        return cloud_callback_label(row.name)
    return installation_secrets.WEBHOOK_SECRETS if row.name == certificates.WEBHOOK_SECRETS else row.name


async def _replace_key(database: Database, key: DataKey, wrapped: bytes) -> None:
    await database.persist(
        lambda connection: sealed_rows.replace_data_key(connection, key, wrapped), retry_seconds=30.0, about="keys"
    )


async def _replace_row(database: Database, row: SealedRow, content: bytes) -> None:
    await database.persist(
        lambda connection: sealed_rows.replace_settings(connection, row, content), retry_seconds=30.0, about="keys"
    )
