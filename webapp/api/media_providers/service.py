"""Store media providers with sealed credentials."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret, provider_label
from tidings.storage.business import media_providers, numbers
from tidings.storage.business.media_providers import MediaProviderRow
from tidings.storage.database import Connection, Database
from tidings.wire.codes import NOT_FOUND, PARAMETER_INVALID
from webapp.api.media_providers import schemas
from webapp.auth.tokens import Caller
from webapp.http.errors import InvalidRequest

log = logging.getLogger(__name__)


class ProviderList:
    """Media providers of the caller's account."""

    def __init__(self, database: Database, safe: SecretSealer) -> None:
        self._database = database
        self._safe = safe

    async def all(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the providers as they were posted. One that was sealed under another key has an empty `config`."""
        async with self._database.reading() as connection:
            found = await media_providers.list_providers(connection, caller.account)
        return [{"name": entry.name, "type": entry.kind, "config": self._open(entry)} for entry in found]

    async def save(self, caller: Caller, given: schemas.MediaProviders) -> None:
        """Add providers, replacing those of the same name. Raises `InvalidRequest` for more than the limit."""
        by_name = {entry.name: entry for entry in given.root}
        rows = [
            MediaProviderRow(
                caller.account,
                name,
                entry.type,
                self._safe.seal(
                    caller.account,
                    provider_label(name),
                    msgspec.json.encode(entry.config.model_dump(exclude_none=True)),
                ),
            )
            for name, entry in by_name.items()
        ]

        async def work(connection: Connection) -> bool:
            # Concurrent calls could exceed the limit.
            await numbers.lock(connection, caller.account)
            present = await media_providers.list_providers(connection, caller.account)
            if len({entry.name for entry in present} | by_name.keys()) > schemas.MAX_PROVIDERS:
                return False
            await media_providers.save_providers(connection, rows)
            return True

        if not await self._database.persist(work, retry_seconds=5.0):
            raise InvalidRequest.because(PARAMETER_INVALID, f"providers: there may be {schemas.MAX_PROVIDERS} at most")
        log.info("providers.changed", extra={"username": caller.username, "names": ",".join(by_name)})

    async def delete(self, caller: Caller, name: str) -> None:
        """Delete a provider. Raises `InvalidRequest` when none has this name."""

        async def work(connection: Connection) -> bool:
            found = await media_providers.find_provider(connection, caller.account, name)
            if found is not None:
                await media_providers.delete_provider(connection, caller.account, name)
            return found is not None

        if not await self._database.commit(work):
            raise InvalidRequest.because(NOT_FOUND, f"there is no media provider {name[:64]!r}")
        log.info("providers.deleted", extra={"username": caller.username, "names": name})

    def _open(self, entry: MediaProviderRow) -> Any:
        try:
            return msgspec.json.decode(self._safe.open(entry.account, provider_label(entry.name), entry.config))
        except UnreadableSecret as error:
            log.warning("providers.unreadable", extra={"error": str(error)})
            return {}
