"""Make and restore backups."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import logging

import msgspec

from tidings.aio.clock import Clock
from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret
from tidings.secrets import password_box
from tidings.storage import outages
from tidings.storage.business.application_settings import ApplicationSettings
from tidings.storage.database import Database
from tidings.wire import core
from tidings.wire.codes import INTERNAL_ERROR, PARAMETER_INVALID
from tidings.wire.decoding import UNREADABLE
from webapp.api.application_settings.service import URLGuard, require_callable
from webapp.api.backup import checks, contents
from webapp.api.backup.contents import Contents
from webapp.auth.tokens import Caller
from webapp.coreapps.interfaces import AllCoreapps
from webapp.http.errors import DatabaseFailed, DatabaseUnavailable, InvalidRequest, RequestTooLarge

log = logging.getLogger(__name__)

_PURPOSE = "tidings backup"
# Seconds for which the response waits for each Coreapp to apply the settings.
_TIMEOUT = 5.0


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Backups:
    """Backups of the caller's account: settings and keys, but no users, messages, callbacks or sessions."""

    database: Database
    coreapps: AllCoreapps
    _: dataclasses.KW_ONLY
    safe: SecretSealer
    guard: URLGuard
    clock: Clock

    async def make(self, caller: Caller, password: str) -> str:
        """Return a backup in base64, encrypted with the password. Raises the errors of the Coreapp link."""
        account = caller.account
        exported = await self.coreapps.of(account).call_primary_repeatable(
            lambda n: core.ExportKeys(n=n, account=account, password=password), core.Exported
        )
        try:
            async with self.database.reading() as connection:
                found = await contents.read(connection, self.safe, account, exported.data)
        except UnreadableSecret as error:
            raise InvalidRequest.because(INTERNAL_ERROR, f"it was encrypted with another key: {error}") from error
        data = await asyncio.to_thread(password_box.seal, password, msgspec.json.encode(found), purpose=_PURPOSE)
        log.info("backup.made", extra={"username": caller.username, "bytes": len(data)})
        return data

    async def restore(self, caller: Caller, password: str, data: str) -> None:
        """Restore a backup, keys first. Nothing is changed unless all parts are valid.

        Raises `InvalidRequest`, `DatabaseUnavailable`, and the errors of the Coreapp link.
        """
        account = caller.account
        found = await asyncio.to_thread(_open, password, data)
        now = datetime.datetime.fromtimestamp(self.clock.now(), datetime.UTC)
        checked = await asyncio.to_thread(checks.check, found, account, now)
        settings = msgspec.json.decode(checked.contents.settings, type=ApplicationSettings)
        await require_callable(self.guard, settings.webhooks.url, "data: settings.webhooks.url")
        if not await self.database.is_alive():
            # Known before the Coreapp has the keys, so that nothing is done.
            raise DatabaseUnavailable
        try:
            await self.coreapps.of(account).call_primary(
                lambda n: core.RestoreKeys(n=n, account=account, password=password, data=found.keys), core.Done
            )
        except RequestTooLarge as error:
            raise RequestTooLarge(error.limit, what="data: the part with the keys") from None
        if checked.outdated:
            log.warning("backup.certificate_left_out", extra={"error": checked.outdated})
        try:
            await self.database.persist(
                lambda connection: contents.write(
                    connection, self.safe, account, checked.contents, keep_external=bool(checked.outdated)
                ),
                retry_seconds=5.0,
            )
        except Exception as error:
            if outages.is_outage(error):
                # The keys are in force already, so this is not a refusal before any effect.
                raise DatabaseFailed() from error
            raise
        await self.coreapps.of(account).call_all(
            lambda n: core.SettingsChanged(n=n, account=account), core.Done, timeout=_TIMEOUT
        )
        log.info("backup.restored", extra={"username": caller.username})


def _open(password: str, data: str) -> Contents:
    try:
        found = msgspec.json.decode(password_box.open_box(password, data, purpose=_PURPOSE), type=Contents)
    except password_box.CannotOpen as error:
        raise InvalidRequest.because(PARAMETER_INVALID, f"password: {error}") from None
    except (ValueError, *UNREADABLE) as error:
        raise InvalidRequest.because(PARAMETER_INVALID, f"data: {error}") from None
    if found.version != contents.VERSION:
        raise InvalidRequest.because(PARAMETER_INVALID, f"data: is of version {found.version}, not {contents.VERSION}")
    return found
