"""Keys that are not those of the database, recognised at start."""

from __future__ import annotations

import asyncio
import time

from tidings.e2ee import errors
from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret
from tidings.e2ee.master_keys import MasterKeys
from tidings.keys import wrapping
from tidings.runtime.env import SettingsError
from tidings.runtime.process_secrets import SecretKeys
from tidings.storage.business import key_checks, sealed_rows
from tidings.storage.business.key_checks import KeyCheck
from tidings.storage.database import Database


async def require_master(database: Database, keys: SecretKeys) -> None:
    """Raises `SettingsError` for a master key that is not the one that the database is sealed under. A new database is
    this key's from now on."""
    masters = MasterKeys(keys.keys, keys.read)
    async with database.reading() as connection:
        check = await key_checks.find(connection, key_checks.MASTER)
        wrapped = await sealed_rows.list_data_keys(connection)
    needed = {check.key_id} if check is not None else set()
    if not needed <= set(masters.ids):
        await asyncio.to_thread(masters.reload)
    what = f"{keys.source}: the master key {masters.current}"
    _require(needed, masters.ids, what)
    try:
        for found in wrapped:
            masters.unwrap(wrapping.DATA_KEY_ID, found.wrapped)
    except errors.UnknownMasterKey as error:
        _require({error.key_id}, masters.ids, what)
    except errors.CorruptState:
        raise SettingsError(f"{keys.source}: is not the master key that this database is sealed under") from None
    if check is None:
        await _keep(database, KeyCheck(key_checks.MASTER, masters.current, "", _now()))


async def require_settings(database: Database, keys: SecretKeys) -> None:
    """The same for the settings key. What an earlier release left unsealed is sealed."""
    safe = SecretSealer(*keys.keys, read=keys.read)
    async with database.reading() as connection:
        check = await key_checks.find(connection, key_checks.SETTINGS)
        rows = [row for row in await sealed_rows.list_settings(connection) if wrapping.is_sealed(row)]
    if check is not None:
        if check.key_id not in safe.ids:
            safe.reload()
        _require({check.key_id}, safe.ids, f"{keys.source}: the settings key {safe.current}")
    else:
        if rows and not any(_opens(safe, row) for row in rows):
            raise SettingsError(f"{keys.source}: is not the settings key that this database is sealed under")
        await _keep(database, KeyCheck(key_checks.SETTINGS, safe.current, "", _now()))
    await wrapping.seal_settings(database, safe, unsealed_only=True)


def _require(needed: set[str], known: object, what: str) -> None:
    missing = sorted(needed - set(known))  # type: ignore[call-overload]
    if missing:
        raise SettingsError(f"{what} is not {missing[0]}, which this database is sealed under")


def _opens(safe: SecretSealer, row: sealed_rows.SealedRow) -> bool:
    try:
        wrapping.open_row(safe, row)
    except UnreadableSecret:
        return False
    return True


async def _keep(database: Database, check: KeyCheck) -> None:
    await database.persist(lambda connection: key_checks.add(connection, check), about="keys")


def _now() -> int:
    return int(time.time() * 1000)
