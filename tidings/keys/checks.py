"""Checks at start that a process has the keys of the database."""

from __future__ import annotations

import asyncio
import hashlib
import time

from tidings.config.env import SettingsError
from tidings.e2ee import errors
from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret
from tidings.e2ee.master_keys import MasterKeys
from tidings.keys import wrapping
from tidings.secrets.process_secrets import SecretKeys
from tidings.storage.business import key_checks, nodes, sealed_rows, webapp_nodes
from tidings.storage.business.key_checks import KeyCheck
from tidings.storage.database import Connection, Database


async def require_master(database: Database, keys: SecretKeys) -> None:
    """Raise `SettingsError` unless the database is sealed under this master key. Record the key of a new database."""
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
        kept = await _keep(database, KeyCheck(key_checks.MASTER, masters.current, "", _now()))
        _require({kept.key_id}, masters.ids, what)


async def require_settings(database: Database, keys: SecretKeys) -> None:
    """Raise `SettingsError` unless the database is sealed under this settings key. Record the key of a new database.

    Also seals settings that an earlier release left unsealed.
    """
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
        kept = await _keep(database, KeyCheck(key_checks.SETTINGS, safe.current, "", _now()))
        _require({kept.key_id}, safe.ids, f"{keys.source}: the settings key {safe.current}")
    await wrapping.seal_settings(database, safe, unsealed_only=True)


async def require_link(database: Database, key: str) -> None:
    """Raise `SettingsError` unless the running Webapps and Coreapps have the same link key."""
    await _require_common(database, key_checks.LINK, key, "TIDINGS_LINK_KEY", with_coreapps=True)


async def require_tokens(database: Database, key: str) -> None:
    """Raise `SettingsError` unless the running Webapps have the same token key."""
    await _require_common(database, key_checks.TOKENS, key, "WA_WEB_JWT_CRYPTO_KEY", with_coreapps=False)


async def _require_common(database: Database, name: str, key: str, variable: str, *, with_coreapps: bool) -> None:
    """Compare a key under which nothing is sealed. Another one may replace it when no process runs with the old one."""
    mine = KeyCheck(name, await asyncio.to_thread(_check_value, name, key), "", _now())

    async def work(connection: Connection) -> list[str]:
        """Return the names of the processes that run with another key."""
        await key_checks.add(connection, mine)
        known = await key_checks.find(connection, name, lock=True)
        if known is None or known.key_id == mine.key_id:
            return []
        users = [
            webapp.node for webapp in await webapp_nodes.list_live(connection, heartbeat_timeout=webapp_nodes.SILENCE)
        ]
        if with_coreapps:
            users += [member.node.name for member in await nodes.list_members(connection) if member.is_live]
        if not users:
            await key_checks.replace(connection, mine)
        return users

    users = await database.persist(work, about="keys")
    if users:
        raise SettingsError(
            f"{variable} differs from that of {', '.join(users[:5])}: all processes of an installation need the same. "
            "To change it, stop all of them first"
        )


def _check_value(name: str, key: str) -> str:
    """Return a 64-bit check value. It takes 50 ms to compute, which protects keys that a person has chosen."""
    return hashlib.scrypt(key.encode(), salt=f"tidings {name}".encode(), n=2**14, r=8, p=1, dklen=8).hex()


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


async def _keep(database: Database, check: KeyCheck) -> KeyCheck:
    """Record a key unless one is recorded. Returns the recorded one: another process may have recorded one first."""

    async def work(connection: Connection) -> KeyCheck:
        await key_checks.add(connection, check)
        return await key_checks.find(connection, check.name, lock=True) or check

    return await database.persist(work, about="keys")


def _now() -> int:
    return int(time.time() * 1000)
