"""Wiring of a process that serves handsets as pages."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

from handset.devices import lock
from handset.devices.row_sealer import RowSealer
from handset.settings import FAMILY, WebSettings
from handset.web import live, rendering
from handset.web.app import HandsetApp
from handset.web.phones import PhoneBook
from handset.web.sessions import EndedSessions, PageSessions
from handset.web.site import ROOT, Site
from tidings.aio.clock import SystemClock
from tidings.aio.service import run_services
from tidings.client import transports
from tidings.client.http import NetworkApi
from tidings.config.env import SettingsError, is_loopback
from tidings.http.hosts import Hosts
from tidings.http.protocol import HttpLimits
from tidings.http.server import AsgiConfig, AsgiServer, BoundedHttpProtocol
from tidings.installation import network_access
from tidings.net import own_certificate, socket_server
from tidings.net.rate_limited_server import RateLimitedServer
from tidings.net.tls import CertificateWatch
from tidings.pages.assets import PageAssets
from tidings.pages.event_streams import EventStreams
from tidings.secrets import private_files
from tidings.storage import schema
from tidings.storage.database import Database

log = logging.getLogger(__name__)

FLEET = "handset-pages"  # name of the lock
CONNECTIONS = 128  # concurrent connections of browsers; one more is closed at once
# Connections accepted per second, and burst; the others wait in the kernel's backlog.
RATE, BURST = 100.0, 200.0
GRACE = 2.0  # seconds that requests in progress have to finish when the process stops
UPLOADS = "uploads"  # directory for files on their way to the network
ENDED = "handset-sessions-ended"  # file with ended sessions of browsers


@dataclasses.dataclass(frozen=True, slots=True)
class PageAddress:
    """Where the pages are, and the link that opens them once."""

    url: str
    link: str


class _Protocol(BoundedHttpProtocol):
    most = CONNECTIONS


@dataclasses.dataclass(eq=False, repr=False)
class PageServer:
    """Service that serves the pages on one address. It listens from `open` on."""

    name = "pages"

    app: HandsetApp
    streams: EventStreams
    address: tuple[str, int]

    def __post_init__(self) -> None:
        host = self.address[0]
        self._tls: ssl.SSLContext | None = None if is_loopback(host) else own_certificate.make_context(host)
        self._server = AsgiServer(
            AsgiConfig(self.app, _Protocol, HttpLimits()),
            lambda listening, make: RateLimitedServer(
                listening, make, rate=RATE, burst=BURST, context=self._tls, handshake_seconds=5.0
            ),
            grace=GRACE,
        )

    def open(self) -> tuple[str, int]:
        """Bind; return the address with the port that was bound. Raises `SettingsError`."""
        host, port = self.address
        try:
            self._listening = socket_server.listen(host, port)
        except OSError as error:
            raise SettingsError(f"TIDINGS_HANDSET_WEB_ADDRESS {host}:{port}: {error.strerror or error}") from error
        return host, int(self._listening.getsockname()[1])

    async def run(self, stop: asyncio.Event) -> None:
        ending = asyncio.create_task(self._end_streams(stop))
        try:
            await self._server.serve_until(stop, [self._listening])
        finally:
            ending.cancel()

    async def _end_streams(self, stop: asyncio.Event) -> None:
        """End the event streams at the stop, which would otherwise use up the grace period."""
        await stop.wait()
        self.streams.close()


async def run_web(settings: WebSettings, stop: asyncio.Event, ready: Callable[[PageAddress], None]) -> None:
    """Serve the pages and run their phones until `stop`. `ready` is called with the address once it listens.

    Raises `AlreadyRunning`, `SettingsError`, `CorruptState` when the store was sealed under another key, and
    `ServiceFailed`.
    """
    database, clock = Database(settings.database, FAMILY), SystemClock()
    key = settings.secrets.handset_key.keys[0]
    uploads = settings.data_dir / UPLOADS
    with lock.only_one(settings.data_dir, FLEET):
        try:
            await schema.prepare(database, migrate=True)
            _empty(uploads)
            tls = network_access.make_context(settings.network_files, *settings.endpoints())
            async with NetworkApi(settings.http_url, tls=tls) as api:
                streams = EventStreams()
                book = PhoneBook(
                    settings.data_dir,
                    database,
                    RowSealer(key),
                    clock,
                    api=api,
                    dial=transports.over_http(settings.http_url, tls=tls),
                    registration_key=settings.secrets.registration_key,
                    changed=lambda number: streams.publish(number, live.CHANGED),
                )
                site = Site(
                    book,
                    PageSessions(key, clock, _ended_sessions(settings.data_dir / ENDED)),
                    streams,
                    PageAssets(f"{ROOT}/static", ("tidings.pages", "handset.web")),
                    rendering.environment(),
                    api,
                    uploads,
                    is_secure=not is_loopback(settings.address[0]),
                )
                watch = CertificateWatch([database.tls, api.tls], clock)
                await _serve(settings, site, watch, stop=stop, ready=ready)
        finally:
            await database.close()


async def _serve(
    settings: WebSettings,
    site: Site,
    watch: CertificateWatch,
    *,
    stop: asyncio.Event,
    ready: Callable[[PageAddress], None],
) -> None:
    names = settings.hosts if is_loopback(settings.address[0]) else {*settings.hosts, settings.address[0]}
    server = PageServer(HandsetApp(site, Hosts(names)), site.streams, settings.address)
    host, port = server.open()
    scheme = "https" if site.is_secure else "http"
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{ROOT}"
    ready(PageAddress(url, f"{url}/enter/{site.sessions.make_link()}"))
    await run_services([watch, site.book, server], stop)


def _ended_sessions(path: Path) -> EndedSessions:
    try:
        return EndedSessions(path)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error


def _empty(uploads: Path) -> None:
    """Make the directory for uploads, without what a killed process has left there."""
    shutil.rmtree(uploads, ignore_errors=True)
    private_files.make_directory(uploads)
