"""Wiring of a Coreapp process."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import ssl
from collections.abc import Callable

from coreapp import quarantine, work_in_progress
from coreapp.settings import Settings
from coreapp.shard.health import CoreappNeeds
from coreapp.shard.link import LinkHandler, LinkKeys
from coreapp.shard.node import ShardNode
from coreapp.shard.open_links import LinkClosing, OpenLinks
from coreapp.shard.request_starts import RequestStarts
from coreapp.work_in_progress import WorkInProgress
from tidings.aio import service
from tidings.aio.clock import SystemClock
from tidings.client.http import NetworkApi
from tidings.config.env import SettingsError, printable
from tidings.installation import data_directory, network_access
from tidings.keys import checks
from tidings.net import exposure, tls
from tidings.net.socket_server import SocketServer
from tidings.net.tls import CertificateWatch
from tidings.net.tls_server import Handshakes
from tidings.net.unauthenticated import UnauthenticatedLinks
from tidings.objects import identity
from tidings.objects.store import FileStore
from tidings.objects.watch import StoreWatch
from tidings.observability.exposition import Exposition
from tidings.observability.readiness import Readiness
from tidings.observability.vitals import Vitals
from tidings.storage import schema
from tidings.storage.business import accounts, numbers
from tidings.storage.database import Database
from tidings.wire import connection, core

log = logging.getLogger(__name__)

# TLS handshakes per second, and in one burst, from addresses without an authenticated Webapp. Each costs up to 3 ms of
# CPU.
LINK_HANDSHAKES, LINK_BURST = 15.0, 100.0
# Connections per second without TLS, from all addresses. One with a wrong key costs up to 0.5 ms of CPU.
LINK_CONNECTIONS = 50.0


@dataclasses.dataclass(frozen=True, slots=True)
class CoreappAddresses:
    """Addresses at which the process listens."""

    link: tuple[str, int]  # link to Webapps
    metrics: tuple[str, int]  # Prometheus text over HTTP


async def run(settings: Settings, stop: asyncio.Event, ready: Callable[[CoreappAddresses], None] | None = None) -> None:
    """Serve until `stop`. Raises `PendingMigrations`, and `SettingsError` for another number's database or a used port.

    ready: called once the process owns a shard or is a standby
    """
    log.info("coreapp.starting", extra=printable(settings))
    database = Database(settings.database, "business", idle_timeout=settings.lease_seconds)
    to_network = network_access.make_context(settings.network_files, *settings.network_ways())
    network = NetworkApi(settings.network_http, tls=to_network, transfers=2 * settings.media_transfers)
    own = _link_context(settings)
    links = OpenLinks()
    server: asyncio.Server | SocketServer | None = None
    files: FileStore | None = None
    work = WorkInProgress()
    try:
        await _require_own(settings, database)
        work = await _take_over_items(settings, database)
        node = ShardNode(
            settings,
            database,
            network,
            clock=SystemClock(),
            address=lambda: f"{settings.advertised_host}:{port}",
            work=work,
        )
        files = node.process.files
        node.process.working.prepare()
        media = identity.of_media(database, files)
        await media.claim()
        server = await _listen(settings, node, links, own)
        host, port = server.sockets[0].getsockname()[:2]
        media_watch = StoreWatch(media)
        readiness = Readiness(CoreappNeeds(node.databases, node.shards, media_watch).check, SystemClock())
        metrics = await Exposition.start(
            *settings.metrics_address,
            key=settings.api_key,
            ready=readiness.check,
            files=settings.tls_files,
            plaintext=exposure.METRICS in settings.plaintext,
        )
        addresses = CoreappAddresses((host, port), (settings.metrics_address[0], metrics.port))
        try:
            announcing = asyncio.create_task(_announce(node, settings, addresses, ready))
            watch = CertificateWatch([own, to_network, database.tls, metrics.tls], SystemClock())
            vitals = Vitals({"data": settings.data_dir, "media": settings.media_dir})
            await service.run_services([vitals, media_watch, node, watch, LinkClosing(links, server.close)], stop)
            announcing.cancel()
        finally:
            metrics.close()
    finally:
        work.close()
        await links.close()
        if server is not None:
            server.close()
        await network.close()
        if files is not None:
            await files.close()
        await database.close()
        log.info("coreapp.stopped")


async def _require_own(settings: Settings, database: Database) -> None:
    """Prepare the tables. Raises `PendingMigrations`, and `SettingsError` for a database of another number or other
    keys.
    """
    await schema.prepare(database, migrate=settings.embedded)
    await accounts.require_number(database, settings.account)
    await checks.require_master(database, settings.secrets.master_key)
    data_directory.require_number(settings.data_dir, settings.account)
    await database.persist(lambda connection: numbers.add_first(connection, settings.account), retry_seconds=10.0)
    await checks.require_settings(database, settings.secrets.settings_key)
    await checks.require_link(database, settings.secrets.link_key)


async def _take_over_items(settings: Settings, database: Database) -> WorkInProgress:
    """Count an attempt for each item that a dead process was handling. Returns the file for the items of this one."""
    # A container may have a read-only data directory.
    directories = (settings.data_dir, settings.media_dir)
    with work_in_progress.items_of_crashed(directories) as items:
        await quarantine.count_attempts(database, SystemClock(), items, "the process ended while it handled this")
    return WorkInProgress.open(directories)


async def _listen(
    settings: Settings, node: ShardNode, links: OpenLinks, context: tls.FileContext | None
) -> asyncio.Server | SocketServer:
    """Listen for Webapps. Raises `SettingsError` if the address cannot be used."""
    unauthenticated_links = UnauthenticatedLinks()
    keys = LinkKeys.of(settings.secrets.link_key, settings.secrets.master_key)
    starts = RequestStarts(node.shards.callbacks_due)
    host, port = settings.link_address
    try:
        return await connection.listen(
            host,
            port,
            core.Request,
            lambda: LinkHandler(
                keys,
                settings.node,
                node.shards,
                numbers=node.numbers,
                unauthenticated_links=unauthenticated_links,
                links=links,
                starts=starts,
                databases=node.databases,
            ),
            tls=context,
            handshakes=Handshakes("link", rate=LINK_HANDSHAKES, burst=LINK_BURST),
            rate=LINK_CONNECTIONS,
            burst=LINK_BURST,
        )
    except OSError as error:
        raise SettingsError(f"TIDINGS_COREAPP_ADDRESS {host}:{port}: {error.strerror or error}") from error


def _link_context(settings: Settings) -> tls.FileContext | None:
    """Return the TLS context of the link; None without a certificate. Webapps must present certificates too: with the
    link key alone, an impostor at their address would receive it.
    """
    if not settings.tls_files.chain:
        return None
    return tls.server("link", settings.tls_files, clients=tls.Clients.REQUIRED, least=ssl.TLSVersion.TLSv1_3)


async def _announce(
    node: ShardNode, settings: Settings, addresses: CoreappAddresses, ready: Callable[[CoreappAddresses], None] | None
) -> None:
    """Call `ready` once this process owns a shard, a live process owns it, or the number waits for a registration
    code.
    """
    known = [asyncio.create_task(event.wait()) for event in (node.owned, node.requests.unregistered)]
    timeout = settings.lease_seconds + 2 * settings.heartbeat_seconds
    try:
        done, _ = await asyncio.wait(known, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in known:
            task.cancel()
    if not done:
        log.info("coreapp.standing_by", extra={"node": settings.node})
    if ready is not None:
        ready(addresses)
