"""Wires the network process together and runs it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable

from network import app
from network.blobs import routes as blob_routes
from network.blobs.store import Store
from network.blobs.sweeper import BlobSweeper
from network.connections.connections import Connections
from network.connections.session import Backend
from network.connections.tcp import TcpListener
from network.delay import Delay
from network.devices import routes
from network.devices.blocks import Blocks
from network.devices.codes import Codes
from network.devices.keys import Keys
from network.devices.registrations import Registrations
from network.directory.absences import Absences
from network.directory.bundles import Bundles
from network.directory.logins import Logins
from network.directory.lookups import Lookups
from network.directory.recipients import Recipients
from network.directory.refills import Refills
from network.errors import CannotStore
from network.groups import routes as group_routes
from network.groups.chats import Chats
from network.groups.copies import Copies
from network.http_server import HttpServer
from network.routing.expiry import Expiry
from network.routing.mailbox import SqlMailbox
from network.routing.notices import Notices
from network.routing.router import Router
from network.routing.sequence import Sequence
from network.routing.sweeper import Sweeper
from network.settings import Settings
from tidings.media.files import Files
from tidings.runtime.clock import Clock, SystemClock
from tidings.runtime.service import run_services
from tidings.runtime.settings import printable
from tidings.storage import schema
from tidings.storage.database import Database

log = logging.getLogger(__name__)

# Seconds that each service has to stop; the one of the connections stores what is undecided and says goodbye.
GRACE = 15.0


@dataclasses.dataclass(frozen=True, slots=True)
class Addresses:
    """Where the process can be reached: (host, port)."""

    http: tuple[str, int]
    tcp: tuple[str, int]


async def run(
    settings: Settings,
    stop: asyncio.Event,
    ready: Callable[[Addresses], None] | None = None,
    *,
    clock: Clock | None = None,
) -> None:
    """Serve until `stop`; `ready` is called when both addresses answer.

    Raises `CannotListen`, `CannotStore`, `PendingMigrations`, `ServiceFailed`, and what the database raises when it is
    not there.
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
    ready: Callable[[Addresses], None] | None,
) -> None:
    limits = settings.limits
    store = SqlMailbox(database)
    recipients = Recipients(database)
    router = Router(store, recipients, Sequence(clock, await store.last_seq()), clock, limits, ttl=settings.message_ttl)
    logins, refills = Logins(database), Refills()
    delay = Delay(*settings.delay)
    notices = Notices(router, clock, settings.message_ttl)
    chats = Chats(database, notices, clock)
    absences = Absences()
    backend = Backend(
        router=router,
        copies=Copies(database, notices, clock, settings.message_ttl),
        logins=logins,
        lookups=Lookups(database, absences),
        bundles=Bundles(database, refills),
        refills=refills,
        delay=delay,
        limits=limits,
    )
    connections = Connections(backend, router)
    blob_store = await _open_blobs(settings, database, clock)
    devices = routes.Service(
        codes=Codes(database, settings.secrets.registration_key, clock),
        registrations=Registrations(database, router, recipients, logins, notices, absences, chats, clock),
        keys=Keys(database, router, refills),
        blocks=Blocks(database, recipients),
        logins=logins,
        registration_key=settings.secrets.registration_key,
    )
    groups = group_routes.Service(chats, logins)
    blobs = blob_routes.Service(blob_store, blob_routes.Transfers(limits.transfers), logins)
    application = app.create(
        devices, groups, blobs, connections, router, database, delay, write_buffer=limits.write_buffer
    )
    http = HttpServer(settings.http_address, settings.http_certificate, application, connections=limits.http)
    tcp = TcpListener(settings.tcp_address, settings.tcp_certificate, connections, write_buffer=limits.write_buffer)
    try:
        addresses = Addresses(http=http.open(), tcp=await tcp.open())
        log.info("network.ready", extra={"http": addresses.http, "tcp": addresses.tcp})
        if ready is not None:
            ready(addresses)
        expiry = Expiry(database, router, notices, clock, settings.expiry_interval, settings.message_ttl)
        sweeper, blob_sweeper = Sweeper(router), BlobSweeper(database, blob_store)
        await run_services([http, tcp, sweeper, blob_sweeper, expiry, connections], stop, grace=GRACE)
    finally:
        http.close()
        tcp.close()


async def _open_blobs(settings: Settings, database: Database, clock: Clock) -> Store:
    where = settings.blobs
    store = Store(database, Files(where.directory), clock, quota=where.quota, ttl=where.ttl)
    try:
        await store.open()
    except OSError as error:
        raise CannotStore(f"TIDINGS_NETWORK_BLOB_DIR {where.directory}: {error.strerror or error}") from error
    return store
