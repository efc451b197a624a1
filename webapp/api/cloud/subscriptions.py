"""Webhooks: apps that are subscribed to a WABA, and the callbacks of apps, WABAs and numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from tidings.aio.clock import Clock
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.keys import cloud_urls
from tidings.keys.cloud_urls import CloudCallback
from tidings.storage.business import cloud_callbacks, cloud_subscriptions, numbers
from tidings.storage.database import Connection, Database
from tidings.wire.cloud.identity import IdentityDirectory, NumberIdentity
from webapp.api.cloud.settings_changes import SettingsChanges

log = logging.getLogger(__name__)


class Subscriptions:
    """Subscriptions of this installation's apps, and callbacks.

    A change is in the database when its call returns, and in force as a change of `SettingsChanges`.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        announced: SettingsChanges,
        *,
        safe: SecretSealer,
        directory: IdentityDirectory,
    ) -> None:
        self._directory = directory
        self._database = database
        self._clock = clock
        self._announced = announced
        self._safe = safe

    async def add(self, identity: NumberIdentity) -> None:
        """Subscribe the number's app to its WABA; do nothing when it is subscribed."""
        now = self._clock.now_ms()
        await self._announced.commit(
            self._directory.accounts_of(identity.waba_id),
            lambda connection: cloud_subscriptions.add(connection, identity.waba_id, identity.app_id, now),
        )
        log.info("cloud.subscribed", extra={"waba": identity.waba_id, "app": identity.app_id})

    async def remove(self, identity: NumberIdentity) -> None:
        """End the subscription of the number's app to its WABA, if there is one."""
        await self._announced.commit(
            self._directory.accounts_of(identity.waba_id),
            lambda connection: cloud_subscriptions.remove(connection, identity.waba_id, identity.app_id),
        )
        log.info("cloud.unsubscribed", extra={"waba": identity.waba_id, "app": identity.app_id})

    async def exists(self, identity: NumberIdentity) -> bool:
        async with self._database.reading() as connection:
            return await cloud_subscriptions.exists(connection, identity.waba_id, identity.app_id)

    async def change_callback(
        self,
        identity: NumberIdentity,
        node_id: str,
        change: Callable[[CloudCallback | None], CloudCallback | None],
    ) -> None:
        """Change the callback of an app, a WABA or a number. Concurrent changes follow each other.

        change: returns the new callback for the stored one, each `None` for none; may raise, and be repeated
        """
        owner = identity.owner_of(node_id)

        async def work(connection: Connection) -> None:
            await numbers.lock(connection, owner)
            rows = await cloud_callbacks.list_of(connection, [node_id])
            callback = change(cloud_urls.opened(self._safe, rows[0]) if rows else None)
            if callback is None:
                await cloud_callbacks.remove(connection, node_id)
            else:
                await cloud_callbacks.put(connection, cloud_urls.sealed(self._safe, owner, node_id, callback))

        await self._announced.commit(self._directory.accounts_of(node_id), work)
        log.info("cloud.callback_set", extra={"node": node_id})

    async def callbacks(self, node_ids: Sequence[str]) -> Mapping[str, CloudCallback]:
        """Return the callbacks of those of the objects that have one."""
        async with self._database.reading() as connection:
            rows = await cloud_callbacks.list_of(connection, node_ids)
        opened = {row.node_id: cloud_urls.opened(self._safe, row) for row in rows}
        return {node_id: callback for node_id, callback in opened.items() if callback is not None}
