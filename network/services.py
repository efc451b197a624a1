"""Wiring and start of the network process."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence, Set
from ssl import SSLContext

from fastapi import FastAPI

from network import app
from network.blobs.routes import BlobEndpoints
from network.blobs.store import BlobStore, BlobSweeper
from network.connections import websocket_connection
from network.connections.backend import Backend
from network.connections.connections import Connections, make_unauthenticated
from network.connections.tcp import TcpListener
from network.context import NetworkContext
from network.delay import Delay
from network.devices.codes import Codes
from network.devices.familiar_addresses import FamiliarAddresses
from network.devices.locks import LockActivity, Locks
from network.devices.registering import RegistrationEndpoints, RegistrationKey
from network.devices.registrations import Registrations
from network.devices.routes import DeviceEndpoints
from network.errors import CannotStore
from network.expiry import Expiry
from network.groups.chats import Chats
from network.groups.copies import Copies
from network.groups.kept_messages import KeptMessages
from network.groups.routes import GroupEndpoints
from network.http_server import HttpServer
from network.operator import OperatorEndpoints
from network.settings import Settings
from network.wiring import Routing
from tidings.aio.clock import Clock, SystemClock
from tidings.aio.service import Service, run_services
from tidings.aio.slots import Slots
from tidings.config import env
from tidings.config.env import printable
from tidings.http import server
from tidings.http.connection_limiter import ConnectionLimiter
from tidings.http.hosts import Hosts
from tidings.net import exposure
from tidings.net.tls import CertificateWatch
from tidings.objects import identity
from tidings.objects.store import FileStore
from tidings.objects.stores import open_store
from tidings.objects.watch import StoreWatch
from tidings.observability.exposition import OK, Exposition
from tidings.observability.vitals import Vitals
from tidings.storage import schema
from tidings.storage.database import Database

log = logging.getLogger(__name__)

# Seconds that each service has to stop. In that time the connections store undecided envelopes and close.
GRACE = 15.0


@dataclasses.dataclass(frozen=True, slots=True)
class NodeAddresses:
    """Addresses where the process can be reached, as (host, port), and whether each uses TLS."""

    http: tuple[str, int]
    tcp: tuple[str, int]
    http_tls: bool = False
    tcp_tls: bool = False


async def run(
    settings: Settings,
    stop: asyncio.Event,
    ready: Callable[[NodeAddresses], None] | None = None,
    *,
    clock: Clock | None = None,
) -> None:
    """Serve until `stop`; `ready` is called when both addresses accept connections.

    Raises `CannotListen`, `CannotStore`, `WrongStore`, `PendingMigrations`, `ServiceFailed`, and the database's error
    when it cannot be reached.
    """
    log.info("network.starting", extra=printable(settings))
    database = Database(settings.database, "network")
    try:
        await schema.prepare(database, migrate=settings.embedded)
        await _serve(settings, database, clock or SystemClock(), stop, ready)
    finally:
        await database.close()
    log.info("network.stopped")


async def _serve(
    settings: Settings,
    database: Database,
    clock: Clock,
    stop: asyncio.Event,
    ready: Callable[[NodeAddresses], None] | None,
) -> None:
    routing = Routing(settings, database, clock)
    files = open_store(settings.blobs.directory, settings.blobs.bucket)
    context = await routing.open()
    metrics: Exposition | None = None
    try:
        http, tcp, others = await _wire(context, routing, files)
        metrics = await _serve_metrics(settings, database, routing)
        contexts = [database.tls, *routing.contexts, metrics.tls if metrics is not None else None]
        await _listen(context, http, tcp, others, contexts, stop, ready)
    finally:
        if metrics is not None:
            metrics.close()
        await routing.close()
        await files.close()


async def _serve_metrics(settings: Settings, database: Database, routing: Routing) -> Exposition | None:
    """Serve metrics on a separate listener, if one is set. Raises `SettingsError`."""
    if settings.metrics_address is None:
        return None

    async def checks() -> dict[str, str]:
        return {
            "database": OK if await database.is_alive() else "away",
            "node": OK if routing.is_ready else "not ready",
        }

    served = await Exposition.start(
        *settings.metrics_address,
        key=settings.api_key,
        ready=checks,
        files=settings.tls_files,
        plaintext=exposure.METRICS in settings.plaintext,
        variable="TIDINGS_NETWORK_METRICS_ADDRESS",
    )
    log.info("network.metrics", extra={"address": (settings.metrics_address[0], served.port)})
    return served


async def _wire(
    context: NetworkContext, routing: Routing, files: FileStore
) -> tuple[HttpServer, TcpListener, Sequence[Service]]:
    settings, database, clock, directory = context.settings, context.database, context.clock, context.directory
    limits, is_local = settings.limits, env.is_loopback(settings.http_address[0])
    delay, chats, kept = Delay(*settings.delay), Chats(context), KeptMessages(context)
    if await kept.settle_all():
        routing.read_all_mailboxes()
    unauthenticated = make_unauthenticated(clock, limits, settings.trusted_proxies)
    backend = Backend(context.router, Copies(context, kept), kept, directory, unauthenticated, delay, limits)
    connections = Connections(backend, settings.drain)
    blob_store, blobs = await _open_blobs(context, files)
    addresses = FamiliarAddresses(database, settings.secrets.registration_key)
    locks = Locks(database, clock, addresses)
    registrations = Registrations(context, chats, locks)
    routing.share(connections, registrations)
    routes = [
        _registration_endpoints(context, registrations).routes(),
        DeviceEndpoints(context, registrations).routes(),
        GroupEndpoints(chats, directory).routes(),
        BlobEndpoints(blob_store, Slots(limits.transfers), directory).routes(),
        websocket_connection.make_routes(connections, write_buffer=limits.write_buffer),
        OperatorEndpoints(context, routing.broadcast).routes(),
        app.operator_routes(
            connections,
            context.router,
            database,
            routing=routing,
            blobs=blobs,
            api_key=settings.api_key,
            is_local=is_local,
            has_metrics=settings.metrics_address is None,
        ),
    ]
    http, tcp = _make_listeners(context, app.create(routes, delay, is_local=is_local), connections)
    activity = LockActivity(database, clock, addresses, directory.seen, _origins_of(context))
    sweeper = BlobSweeper(database, blob_store)
    others: list[Service] = [activity, _vitals(settings), blobs, context.router, sweeper, Expiry(context)]
    return http, tcp, [*others, *routing.services(), connections]


def _origins_of(context: NetworkContext) -> Callable[[str], Set[str] | None]:
    """Return a function that returns the origins of an attached device, `None` for a device that is not attached."""
    router, seen = context.router, context.directory.seen
    return lambda number: seen.origins(router.hosts_of(number)) if router.is_online(number) else None


def _vitals(settings: Settings) -> Vitals:
    directories = {} if settings.blobs.bucket else {"blobs": settings.blobs.directory}
    return Vitals({"data": settings.data_dir, **directories})


def _make_listeners(
    context: NetworkContext, application: FastAPI, connections: Connections
) -> tuple[HttpServer, TcpListener]:
    settings = context.settings
    limiter = ConnectionLimiter(
        settings.unauthenticated,
        context.clock,
        connections=server.affordable(settings.limits.http, settings.unauthenticated),
        trusted=settings.trusted_proxies,
        tls=bool(settings.http_certificate.chain),
    )
    http = HttpServer(
        settings.http_address,
        settings.http_certificate,
        application,
        limiter=limiter,
        hosts=Hosts(settings.http_hosts),
        own_port=settings.worker_port,
        reuse_port=settings.reuse_port,
    )
    tcp = TcpListener(settings, connections)
    connections.on_drain += [tcp.close, http.stop_listening]
    return http, tcp


async def _listen(
    context: NetworkContext,
    http: HttpServer,
    tcp: TcpListener,
    others: Sequence[Service],
    contexts: Sequence[SSLContext | None],
    stop: asyncio.Event,
    ready: Callable[[NodeAddresses], None] | None,
) -> None:
    """Serve until `stop`. contexts: TLS of all other connections, whose certificates are watched too."""
    try:
        bound = http.open(), await tcp.open()
        addresses = NodeAddresses(*bound, http_tls=http.tls is not None, tcp_tls=tcp.tls is not None)
        log.info("network.ready", extra={"http": addresses.http, "tcp": addresses.tcp})
        if ready is not None:
            ready(addresses)
        watch = CertificateWatch([http.tls, tcp.tls, *contexts], context.clock)
        await run_services([http, tcp, watch, *others], stop, grace=GRACE + context.settings.drain)
    finally:
        http.close()
        tcp.close()


def _registration_endpoints(context: NetworkContext, registrations: Registrations) -> RegistrationEndpoints:
    settings = context.settings
    key, certificate = settings.secrets.registration_key, settings.http_certificate
    return RegistrationEndpoints(
        registrations,
        Codes(context.database, key, context.clock),
        RegistrationKey(key, needs_certificate=bool(certificate.chain and certificate.authorities)),
        context.clock,
        businesses=settings.rate_limits.businesses,
    )


async def _open_blobs(context: NetworkContext, files: FileStore) -> tuple[BlobStore, StoreWatch]:
    settings = context.settings.blobs
    store = BlobStore(context.database, files, context.clock, settings)
    try:
        await store.open()
    except OSError as error:
        raise CannotStore(f"TIDINGS_NETWORK_BLOB_DIR {settings.directory}: {error.strerror or error}") from error
    recorded = identity.of_blobs(context.database, files)
    await recorded.claim()
    return store, StoreWatch(recorded)
