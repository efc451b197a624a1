"""Wiring and start of the network process."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from ssl import SSLContext

from fastapi import FastAPI

from network import app
from network.blobs.routes import BlobEndpoints, Transfers
from network.blobs.store import BlobStore
from network.blobs.sweeper import BlobSweeper
from network.connections import websocket
from network.connections.backend import Backend
from network.connections.connection_slots import ConnectionSlots
from network.connections.connections import Connections
from network.connections.tcp import TcpListener
from network.delay import Delay
from network.devices.blocks import Blocks
from network.devices.code_rate_limits import CodeRateLimits
from network.devices.codes import Codes
from network.devices.keys import KeyUploads
from network.devices.lock_activity import LockActivity
from network.devices.locks import Locks
from network.devices.registering import RegistrationEndpoints, RegistrationKey
from network.devices.registrations import Registrations
from network.devices.routes import DeviceEndpoints
from network.errors import CannotStore
from network.groups.chats import Chats
from network.groups.copies import Copies
from network.groups.kept_messages import KeptMessages
from network.groups.routes import GroupEndpoints
from network.http_server import HttpServer
from network.operator import OperatorEndpoints
from network.routing.expiry import Expiry
from network.routing.notices import Notices
from network.routing.quotas import QuotaCheck
from network.routing.router import Router
from network.routing.sweeper import Sweeper
from network.settings import Limits, Settings
from network.wiring import Directory, Routing
from tidings.aio.clock import Clock, SystemClock
from tidings.aio.service import Service, run_services
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
    await routing.open()
    metrics: Exposition | None = None
    try:
        http, tcp, others = await _wire(settings, database, clock, routing, files)
        metrics = await _serve_metrics(settings, database, routing)
        contexts = [database.tls, *routing.contexts, metrics.tls if metrics is not None else None]
        watch = functools.partial(_watch, http, tcp, contexts, clock)
        await _listen(http, tcp, others, watch, stop, ready, grace=GRACE + settings.drain)
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
    settings: Settings, database: Database, clock: Clock, routing: Routing, files: FileStore
) -> tuple[HttpServer, TcpListener, Sequence[Service]]:
    router, directory, mailboxes = routing.router, routing.directory, routing.mailboxes
    limits, ttl, is_local = settings.limits, settings.message_ttl, env.is_loopback(settings.http_address[0])
    delay, notices = Delay(*settings.delay), Notices(router, clock, ttl)
    chats = Chats(database, notices, clock)
    kept = KeptMessages(database, mailboxes, notices, live=router.live, clock=clock)
    if await kept.settle_all():
        routing.look_everywhere()
    copies = Copies(
        database,
        mailboxes,
        notices,
        kept=kept,
        recipients=directory.recipients,
        judge=QuotaCheck(settings.quotas),
        clock=clock,
        ttl=ttl,
    )
    backend = _make_backend(settings, clock, routing, copies, kept, delay)
    connections = Connections(backend, router, node=routing.node, drain=settings.drain)
    blob_store, blobs = await _open_blobs(settings, database, clock, files)
    locks = Locks(database, clock)
    registrations = Registrations(
        database,
        router=router,
        changes=directory.changes,
        notices=notices,
        missing_numbers=directory.missing_numbers,
        chats=chats,
        locks=locks,
        clock=clock,
    )
    routes = [
        _registration_endpoints(settings, database, clock, locks, registrations).routes(),
        _device_endpoints(database, directory, router, locks, registrations).routes(),
        GroupEndpoints(chats, directory.logins, directory.rate_limits).routes(),
        _blob_endpoints(blob_store, limits, directory).routes(),
        websocket.make_routes(connections, write_buffer=limits.write_buffer),
        OperatorEndpoints(database, notices, routing.broadcast, key=settings.operator_key).routes(),
        app.operator_routes(
            connections,
            router,
            database,
            status=routing,
            blobs=blobs,
            api_key=settings.api_key,
            is_local=is_local,
            has_metrics=settings.metrics_address is None,
        ),
    ]
    http, tcp = _make_listeners(settings, clock, app.create(routes, delay, is_local=is_local), connections)
    interval = settings.expiry_interval
    expiry = Expiry(database, router, mailboxes, notices=notices, clock=clock, interval=interval, ttl=ttl)
    routing.share(connections, expiry, registrations)
    vitals = _vitals(settings)
    activity = LockActivity(database, clock, take_seen=directory.logins.take_seen, is_online=router.is_online)
    others: list[Service] = [activity, vitals, blobs, Sweeper(router), BlobSweeper(database, blob_store), expiry]
    return http, tcp, [*others, *routing.services(), connections]


def _vitals(settings: Settings) -> Vitals:
    directories = {} if settings.blobs.bucket else {"blobs": settings.blobs.directory}
    return Vitals({"data": settings.data_dir, **directories})


def _make_backend(
    settings: Settings, clock: Clock, routing: Routing, copies: Copies, kept: KeptMessages, delay: Delay
) -> Backend:
    directory = routing.directory
    return Backend(
        router=routing.router,
        copies=copies,
        kept=kept,
        logins=directory.logins,
        lookups=directory.lookups,
        bundles=directory.bundles,
        refills=directory.refills,
        slots=ConnectionSlots(clock, settings.limits, settings.trusted_proxies),
        rate_limits=directory.rate_limits,
        delay=delay,
        limits=settings.limits,
        presence=routing.node,
    )


def _make_listeners(
    settings: Settings, clock: Clock, application: FastAPI, connections: Connections
) -> tuple[HttpServer, TcpListener]:
    http = HttpServer(
        settings.http_address,
        settings.http_certificate,
        application,
        limiter=_make_door(settings, clock),
        hosts=Hosts(settings.http_hosts),
        own_port=settings.worker_port,
        reuse_port=settings.reuse_port,
    )
    tcp = TcpListener(
        settings.tcp_address,
        settings.tcp_certificate,
        connections,
        write_buffer=settings.limits.write_buffer,
        reuse_port=settings.reuse_port,
    )
    connections.on_drain += [tcp.close, http.stop_listening]
    return http, tcp


def _watch(http: HttpServer, tcp: TcpListener, others: Sequence[SSLContext | None], clock: Clock) -> Service:
    return CertificateWatch([http.tls, tcp.tls, *others], clock)


async def _listen(
    http: HttpServer,
    tcp: TcpListener,
    others: Sequence[Service],
    watch: Callable[[], Service],
    stop: asyncio.Event,
    ready: Callable[[NodeAddresses], None] | None,
    *,
    grace: float,
) -> None:
    try:
        bound = http.open(), await tcp.open()
        addresses = NodeAddresses(*bound, http_tls=http.tls is not None, tcp_tls=tcp.tls is not None)
        log.info("network.ready", extra={"http": addresses.http, "tcp": addresses.tcp})
        if ready is not None:
            ready(addresses)
        await run_services([http, tcp, watch(), *others], stop, grace=grace)
    finally:
        http.close()
        tcp.close()


def _make_door(settings: Settings, clock: Clock) -> ConnectionLimiter:
    return ConnectionLimiter(
        settings.unauthenticated,
        clock,
        connections=server.affordable(settings.limits.http, settings.unauthenticated),
        trusted=settings.trusted_proxies,
        tls=bool(settings.http_certificate.chain),
    )


def _registration_endpoints(
    settings: Settings, database: Database, clock: Clock, locks: Locks, registrations: Registrations
) -> RegistrationEndpoints:
    key, certificate = settings.secrets.registration_key, settings.http_certificate
    return RegistrationEndpoints(
        codes=Codes(database, key, clock),
        code_rate_limits=CodeRateLimits(clock, settings.trusted_proxies),
        locks=locks,
        registrations=registrations,
        key=RegistrationKey(key, needs_certificate=bool(certificate.chain and certificate.authorities)),
        businesses=settings.rate_limits.businesses,
    )


def _device_endpoints(
    database: Database, directory: Directory, router: Router, locks: Locks, registrations: Registrations
) -> DeviceEndpoints:
    return DeviceEndpoints(
        registrations=registrations,
        locks=locks,
        keys=KeyUploads(database, router, directory.refills, other_nodes=directory.other_nodes),
        blocks=Blocks(database, directory.changes),
        logins=directory.logins,
    )


def _blob_endpoints(store: BlobStore, limits: Limits, directory: Directory) -> BlobEndpoints:
    return BlobEndpoints(store, Transfers(limits.transfers), directory.logins, rate_limits=directory.rate_limits)


async def _open_blobs(
    settings: Settings, database: Database, clock: Clock, files: FileStore
) -> tuple[BlobStore, StoreWatch]:
    where = settings.blobs
    store = BlobStore(database, files, clock, quota=where.quota, device_quota=where.device_quota, ttl=where.ttl)
    try:
        await store.open()
    except OSError as error:
        raise CannotStore(f"TIDINGS_NETWORK_BLOB_DIR {where.directory}: {error.strerror or error}") from error
    recorded = identity.of_blobs(database, files)
    await recorded.claim()
    return store, StoreWatch(recorded)
