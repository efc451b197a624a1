"""Apps that are subscribed to the webhooks of a WABA."""

from __future__ import annotations

import logging

from tidings.aio.clock import Clock
from tidings.storage.business import cloud_subscriptions
from tidings.storage.database import Database
from tidings.wire.cloud.identity import NumberIdentity

log = logging.getLogger(__name__)


class Subscriptions:
    """Subscriptions of this installation's apps."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, identity: NumberIdentity) -> None:
        """Subscribe the number's app to its WABA; do nothing when it is subscribed."""
        now = int(self._clock.now() * 1000)
        await self._database.persist(
            lambda connection: cloud_subscriptions.add(connection, identity.waba_id, identity.app_id, now), patience=5.0
        )
        log.info("cloud.subscribed", extra={"waba": identity.waba_id, "app": identity.app_id})

    async def remove(self, identity: NumberIdentity) -> None:
        """End the subscription of the number's app to its WABA, if there is one."""
        await self._database.persist(
            lambda connection: cloud_subscriptions.remove(connection, identity.waba_id, identity.app_id), patience=5.0
        )
        log.info("cloud.unsubscribed", extra={"waba": identity.waba_id, "app": identity.app_id})

    async def exists(self, identity: NumberIdentity) -> bool:
        async with self._database.reading() as connection:
            return await cloud_subscriptions.exists(connection, identity.waba_id, identity.app_id)
