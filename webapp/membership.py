"""Membership of this Webapp: its row, and the number of live Webapps."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable

from prometheus_client import Gauge

from tidings.aio.membership import Membership
from tidings.storage.business import webapp_nodes, webapp_unreached
from tidings.storage.business.webapp_nodes import WebappNode
from tidings.storage.database import Connection, Database

log = logging.getLogger(__name__)

# Seconds between two heartbeats, and seconds without one after which a row is deleted.
HEARTBEAT, FORGOTTEN = 5.0, 3600.0

MEMBERS = Gauge("tidings_webapps", "Webapps of the installation that this Webapp knows, including itself")


class WebappMembership(Membership):
    """Service that sends heartbeats of this Webapp, and removes its row at the end."""

    interval = HEARTBEAT
    events = "webapps"

    def __init__(self, database: Database, node: str, changed: Callable[[int], None]) -> None:
        """Create the service.

        node: `host:port`, for operators
        changed: called with the number of live Webapps when it has changed
        """
        self._database = database
        self._changed = changed
        self._count = 1
        self.webapp = WebappNode(secrets.token_hex(16), node)
        MEMBERS.set(1)

    async def start(self) -> None:
        """Join the installation's Webapps. Raises the database's errors."""
        async with self._database.transaction() as connection:
            await webapp_unreached.record_start(connection, self.webapp.incarnation)
            await webapp_nodes.renew(connection, self.webapp, delete_after=FORGOTTEN)
        async with self._database.reading() as connection:
            await self.poll(connection)

    async def poll(self, connection: Connection) -> None:
        """Count the live Webapps."""
        live = await webapp_nodes.list_live(connection, heartbeat_timeout=webapp_nodes.SILENCE)
        # This Webapp counts as live even if its heartbeat is late.
        count = len({webapp.incarnation for webapp in live} | {self.webapp.incarnation})
        if count != self._count:
            log.info("webapps.counted", extra={"webapps": ",".join(webapp.node for webapp in live)})
            self._count = count
            MEMBERS.set(count)
            self._changed(count)

    async def run(self, stop: asyncio.Event) -> None:
        await super().run(stop)
        await self.leave()

    async def renew(self) -> None:
        async with self._database.transaction() as connection:
            await webapp_nodes.renew(connection, self.webapp, delete_after=FORGOTTEN)

    async def remove(self) -> None:
        async with self._database.transaction(seconds=1.0) as connection:
            await webapp_nodes.remove(connection, self.webapp.incarnation)
