"""What is sealed under a key of the installation, brought under its current one, row by row."""

from __future__ import annotations

from collections.abc import Callable

from tidings.e2ee import installation_secrets
from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret, provider_label
from tidings.e2ee.master_keys import MasterKeys
from tidings.runtime import crashpoints
from tidings.storage.business import certificates, sealed_rows
from tidings.storage.business.sealed_rows import DataKey, SealedRow
from tidings.storage.database import Database

# The data key of a number is its first and only one.
DATA_KEY_ID = 1

Progress = Callable[[int, int], None]


def _silent(done: int, total: int) -> None:
    pass


async def wrap_data_keys(database: Database, masters: MasterKeys, progress: Progress = _silent) -> int:
    """Wrap every data key under the current master key, each in a commit of its own; how many were not.

    progress(done, total) is called after each. Raises `UnknownMasterKey` and `CorruptState`.
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
    database: Database, safe: SecretSealer, progress: Progress = _silent, *, unsealed_only: bool = False
) -> int:
    """Seal everything that the business has set and is secret under the current settings key, as `wrap_data_keys` does.

    What cannot be opened stays as it is: it has to be set again anyway. unsealed_only: and what is sealed already.
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
    """False for a webhook's address that an earlier release left as it is."""
    return row.kind != sealed_rows.WEBHOOK_URL or installation_secrets.is_sealed(row.content.decode())


def open_row(safe: SecretSealer, row: SealedRow) -> bytes:
    """Raises `UnreadableSecret`."""
    if row.kind == sealed_rows.WEBHOOK_URL:
        return safe.open_text(row.account, installation_secrets.WEBHOOK_URL, row.content.decode()).encode()
    return safe.open(row.account, _name(row), row.content)


def _sealed(safe: SecretSealer, row: SealedRow, content: bytes) -> bytes:
    if row.kind == sealed_rows.WEBHOOK_URL:
        return safe.seal_text(row.account, installation_secrets.WEBHOOK_URL, content.decode()).encode()
    return safe.seal(row.account, _name(row), content)


def is_current(safe: SecretSealer, row: SealedRow) -> bool:
    """Is it sealed under the current settings key?"""
    if row.kind == sealed_rows.WEBHOOK_URL:
        return safe.text_needs_current(row.content.decode())
    return safe.needs_current(row.content)


def _name(row: SealedRow) -> str:
    if row.kind == sealed_rows.PROVIDER:
        return provider_label(row.name)
    return installation_secrets.WEBHOOK_SECRETS if row.name == certificates.WEBHOOK_SECRETS else row.name


async def _replace_key(database: Database, key: DataKey, wrapped: bytes) -> None:
    await database.persist(
        lambda connection: sealed_rows.replace_data_key(connection, key, wrapped), patience=30.0, about="keys"
    )


async def _replace_row(database: Database, row: SealedRow, content: bytes) -> None:
    await database.persist(
        lambda connection: sealed_rows.replace_settings(connection, row, content), patience=30.0, about="keys"
    )
