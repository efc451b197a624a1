"""Read and write application settings, and notify the Coreapps."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from tidings.e2ee.installation_secrets import SecretSealer
from tidings.egress.guard import Forbidden
from tidings.keys import webhook_url
from tidings.storage.business import application_settings
from tidings.storage.business.application_settings import ApplicationSettings
from tidings.storage.database import Connection, Database
from tidings.wire import core
from tidings.wire.codes import PARAMETER_INVALID
from webapp.api.application_settings.schemas import Changes
from webapp.auth.tokens import Caller
from webapp.coreapps.interfaces import AllCoreapps
from webapp.http.errors import CoreappUnavailable, InvalidRequest

log = logging.getLogger(__name__)

# Seconds for which the response waits for each Coreapp to apply new settings.
_TIMEOUT = 5.0


class URLGuard(Protocol):
    """Check of URLs before they are called."""

    async def check(self, url: str) -> None: ...


async def require_callable(guard: URLGuard, url: str, field: str) -> None:
    """Raise `InvalidRequest` that names `field` if the URL must not be called. An empty URL passes."""
    if not url:
        return
    try:
        await guard.check(url)
    except (Forbidden, ValueError) as error:
        raise InvalidRequest.because(PARAMETER_INVALID, f"{field}: {error}") from None


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class AccountSettings:
    """Settings of the caller's account.

    A change is in the database when its call returns, and in force in every Coreapp that is connected and responds
    within 5 seconds. The others read it within seconds.
    """

    database: Database
    coreapps: AllCoreapps
    guard: URLGuard
    _: dataclasses.KW_ONLY
    safe: SecretSealer
    statuses_per_post: int  # `webhooks.max_statuses_per_post` of accounts that do not set it

    async def find(self, caller: Caller) -> ApplicationSettings:
        async with self.database.reading() as connection:
            found = await application_settings.find_settings(connection, caller.account)
        if not found.webhooks.max_statuses_per_post:
            webhooks = dataclasses.replace(found.webhooks, max_statuses_per_post=self.statuses_per_post)
            found = dataclasses.replace(found, webhooks=webhooks)
        return webhook_url.opened(self.safe, caller.account, found)

    async def find_webhook(self, caller: Caller) -> tuple[str, webhook_url.Headers]:
        """Return the URL of the webhook and the headers that its posts carry."""
        async with self.database.reading() as connection:
            found = await application_settings.find_settings(connection, caller.account)
        return self._webhook(caller.account, found)

    def _webhook(self, account: str, settings: ApplicationSettings) -> tuple[str, webhook_url.Headers]:
        headers = webhook_url.headers_of(self.safe, account, settings)
        return webhook_url.opened(self.safe, account, settings).webhooks.url, headers

    async def set_webhook(self, caller: Caller, url: str, headers: webhook_url.Headers) -> None:
        """Set the URL of the webhook and the headers that its posts carry. Raises `InvalidRequest` as `change` does."""
        await require_callable(self.guard, url, "url")
        await self._write(caller, {"webhooks": {"url": webhook_url.with_headers(url, headers)}})

    async def change(self, caller: Caller, changes: Changes) -> None:
        """Change settings. Raises `InvalidRequest` for a webhook that must not be called; nothing is changed then."""
        if changes.webhooks is not None:
            await require_callable(self.guard, changes.webhooks.url or "", "webhooks.url")
        document: dict[str, Any] = changes.document()
        if document:
            await self._write(caller, document, keeps_headers=True)

    async def _write(self, caller: Caller, document: Mapping[str, Any], *, keeps_headers: bool = False) -> None:
        """Store changes, and notify the Coreapps.

        keeps_headers: True to keep the headers of posts when the URL is the present one
        """
        url, wanted = document.get("webhooks", {}).get("url"), document

        async def work(connection: Connection) -> None:
            nonlocal wanted
            written = wanted
            if url and keeps_headers:
                # A concurrent call may set other headers.
                present, headers = self._webhook(
                    caller.account, await application_settings.lock_settings(connection, caller.account)
                )
                if url == present:
                    with_headers = webhook_url.with_headers(url, headers)
                    written = {**wanted, "webhooks": {**wanted["webhooks"], "url": with_headers}}
            sealed = webhook_url.sealed(self.safe, caller.account, written)
            settings = await application_settings.change_settings(connection, caller.account, sealed)
            # The commit may be repeated.
            wanted = application_settings.decided(wanted, settings)

        await self.database.persist(work, retry_seconds=5.0)
        await self._notify(caller, sorted(document))

    async def reset(self, caller: Caller) -> None:
        await self.database.persist(
            lambda connection: application_settings.reset_settings(connection, caller.account), retry_seconds=5.0
        )
        await self._notify(caller, ["all"])

    async def _notify(self, caller: Caller, keys: list[str]) -> None:
        responses = await self.coreapps.of(caller.account).call_all(
            lambda n: core.SettingsChanged(n=n, account=caller.account), core.Done, timeout=_TIMEOUT
        )
        missed = sum(isinstance(response, CoreappUnavailable) for response in responses)
        log.info(
            "settings.changed", extra={"username": caller.username, "keys": ",".join(keys), "coreapps_away": missed}
        )
