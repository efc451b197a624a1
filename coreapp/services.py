"""The wiring of a Coreapp process."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable

from prometheus_client import start_http_server

from coreapp.settings import Settings
from coreapp.shard.link import LinkHandler
from coreapp.shard.node import Node
from tidings.client.http import NetworkApi
from tidings.runtime import service
from tidings.runtime.clock import SystemClock
from tidings.runtime.env import printable
from tidings.storage import schema
from tidings.storage.business import accounts
from tidings.storage.database import Database
from tidings.wire import connection, core

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Addresses:
    """Where the process listens, once it does. metrics: Prometheus text over HTTP."""

    link: tuple[str, int]
    metrics: tuple[str, int]


async def run(settings: Settings, stop: asyncio.Event, ready: Callable[[Addresses], None] | None = None) -> None:
    """Serve until `stop`. `ready` is called when the process owns the shard, or stands by for it.

    Raises `PendingMigrations`, `SettingsError` for another number's database, and `OSError` when a port is taken.
    """
    log.info("coreapp.starting", extra=printable(settings))
    database = Database(settings.database, "business", idle_timeout=settings.lease_seconds)
    network = NetworkApi(settings.network_http, transfers=2 * settings.media_transfers)
    server: asyncio.Server | None = None
    try:
        await schema.prepare(database, migrate=settings.embedded)
        await accounts.require_number(database, settings.account)
        node = Node(
            settings,
            database,
            network,
            clock=SystemClock(),
            address=lambda: f"{settings.advertised_host}:{port}",
        )
        server = await connection.listen(
            *settings.link_address,
            core.Question,
            lambda: LinkHandler(
                settings.secrets.link_key,
                settings.node,
                lambda: node.shard,
                requests=node.requests,
                databases=node.databases,
            ),
        )
        host, port = server.sockets[0].getsockname()[:2]
        metrics, _ = start_http_server(settings.metrics_address[1], addr=settings.metrics_address[0])
        addresses = Addresses((host, port), (settings.metrics_address[0], metrics.server_port))
        try:
            announcing = asyncio.create_task(_announce(node, settings, addresses, ready))
            await service.run_services([node], stop)
            announcing.cancel()
        finally:
            metrics.shutdown()
            metrics.server_close()
    finally:
        if server is not None:
            server.close()
        await network.close()
        await database.close()
        log.info("coreapp.stopped")


async def _announce(
    node: Node, settings: Settings, addresses: Addresses, ready: Callable[[Addresses], None] | None
) -> None:
    """Ready means: the shard is ours, or somebody else's who is alive, or the number waits for a code."""
    known = [asyncio.create_task(event.wait()) for event in (node.owned, node.requests.unregistered)]
    patience = settings.lease_seconds + 2 * settings.heartbeat_seconds
    try:
        done, _ = await asyncio.wait(known, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in known:
            task.cancel()
    if not done:
        log.info("coreapp.standing_by", extra={"node": settings.node})
    if ready is not None:
        ready(addresses)
