"""Wiring of what all APIs of a Webapp share, and its life cycle. Each API is built by its own `wiring.py`."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.types import ASGIApp

import webapp.api.cloud.wiring
import webapp.api.d360.layer
import webapp.api.testing.wiring
import webapp.api.upstream.wiring
import webapp.api.users.wiring
import webapp.api.wiring
import webapp.app
from tidings.aio import service
from tidings.aio.clock import Clock, SystemClock
from tidings.changes.watch import Watch
from tidings.config import env
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.egress.guard import EgressGuard
from tidings.http.acceptor import BACKLOG
from tidings.http.connection_limiter import ConnectionLimiter
from tidings.http.hosts import Hosts
from tidings.http.server import affordable
from tidings.installation import data_directory
from tidings.keys import checks
from tidings.net import exposure, tls
from tidings.net.tls import CertificateWatch
from tidings.objects import identity
from tidings.objects.identity import StoreIdentity
from tidings.objects.store import FileStore
from tidings.objects.stores import open_store
from tidings.objects.watch import StoreWatch
from tidings.observability.vitals import Vitals
from tidings.storage import schema
from tidings.storage.business import accounts, changes
from tidings.storage.database import Database
from webapp.api.cloud.facade import Facade
from webapp.api.cloud.limits import NumberSendingLimits
from webapp.api.cloud.wiring import CloudDirectory
from webapp.api.metrics.service import ProcessMetrics
from webapp.api.upstream.service import UpstreamCallbacks
from webapp.api.users.passwords import Hasher
from webapp.api.users.wiring import Logins
from webapp.api.wiring import ResourceParts
from webapp.auth.authenticator import Authenticator, Limit, NumberLimits, RateLimits
from webapp.auth.numbers import Numbers
from webapp.auth.tokens import RevocationMaintenance, Tokens
from webapp.console import console_wiring
from webapp.console.console_wiring import ConsoleParts
from webapp.context import WebappContext
from webapp.coreapps.links import CoreappLinks
from webapp.coreapps.reach_report import ReachReport
from webapp.coreapps.shard_map import DatabaseShardMap, FixedShardMap, ShardMap
from webapp.http import envelope, server
from webapp.http.application import LayeredApplication
from webapp.http.bodies import BodyLimit
from webapp.http.tap import Tap
from webapp.http.tls import ServerTLS
from webapp.membership import WebappMembership
from webapp.rate_limits.shared_limits import SharedLimit
from webapp.rate_limits.token_blocks import TokenBlocks
from webapp.settings import Settings

log = logging.getLogger(__name__)

INTERVAL = 60.0  # seconds between two runs of the maintenance tasks
# Seconds that a request waits for the database, including for a connection, before the response is 503.
DATABASE_SECONDS = 4.0
SHOWN_ONCE = "First password of admin, to be changed at the first login and shown only now: {}"


class Maintenance:
    """Service that runs named maintenance tasks. A failed task does not prevent the others."""

    name = "maintenance"

    def __init__(self, tasks: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
        self._tasks = tasks

    async def run(self, stop: asyncio.Event) -> None:
        while not await service.wait_for(stop, INTERVAL):
            await self.run_once()

    async def run_once(self) -> None:
        for name, task in self._tasks.items():
            try:
                await task()
            except Exception as error:
                log.warning("maintenance.failed", extra={"task": name, "error": repr(error)[:200]})


@dataclasses.dataclass(frozen=True, slots=True)
class ServingAddress:
    """Address of a Webapp that serves requests."""

    url: str
    host: str
    port: int
    console: bool  # whether it serves `/console`


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """Parts that a Webapp coordinates with the installation's other Webapps."""

    membership: WebappMembership
    token_blocks: TokenBlocks
    limits: NumberLimits
    changes: Watch


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts that `run` starts and tests inspect."""

    app: LayeredApplication
    links: CoreappLinks
    tokens: Tokens
    maintenance: Maintenance
    logins: Logins
    resources: ResourceParts
    numbers: Numbers
    tls: ServerTLS | None
    certificates: CertificateWatch
    metrics: ProcessMetrics
    limiter: ConnectionLimiter
    common: Common
    media: StoreIdentity
    media_watch: StoreWatch
    facade: Facade | None
    sending_limits: NumberSendingLimits  # limits of the Cloud API on messages
    console: ConsoleParts


def assemble(
    settings: Settings, database: Database, shard_map: ShardMap, hasher: Hasher, clock: Clock, *, files: FileStore
) -> Parts:
    """Create all parts of a Webapp without starting them. Raises `UnusableCertificate`."""
    calls = exposure.link_calls(settings.tls_files, settings.plaintext, settings.coreapp_tls_name)
    context = _context(settings, database, shard_map, calls, files=files, clock=clock)
    numbers, links = context.numbers, context.links
    common = _common(context)
    tokens = Tokens(database, settings.secrets.jwt_key, clock)
    logins = webapp.api.users.wiring.wire(context, tokens, hasher)
    tls = _tls(context)
    media = identity.of_media(database, files)
    media_watch = StoreWatch(media)
    metrics = ProcessMetrics(clock, backlog=BACKLOG)
    is_local = env.is_loopback(settings.address[0])
    authenticator = Authenticator(tokens, settings.api_key, clock, numbers=numbers, is_local=is_local)
    directory = CloudDirectory.of(context)
    testing, rules = webapp.api.testing.wiring.wire(context, directory.access)
    resources = webapp.api.wiring.wire(context, media_watch, hasher, tls=tls, rules=rules)
    cloud = webapp.api.cloud.wiring.wire(context, directory, common.limits, resources.media)
    callbacks = webapp.api.upstream.wiring.wire(context)
    console = console_wiring.wire(settings, database, links, authenticator, numbers, testing, calls=calls, clock=clock)
    app = webapp.app.create(
        [
            *(authenticator, tokens, common.limits, logins.users),
            *(metrics, BodyLimit(settings.max_body), callbacks, numbers),
            *resources.services,
            *cloud.services,
            *console.parts,
        ],
        max_requests=settings.max_requests,
        open_metrics=is_local and not settings.api_key,
        only_login=logins.only_login,
        facade=cloud.facade,
        testing=testing,
        console=console.site,
    )
    return Parts(
        app=app,
        links=links,
        tokens=tokens,
        maintenance=_maintenance(context, tokens, logins, tls),
        logins=logins,
        resources=resources,
        numbers=numbers,
        tls=tls,
        certificates=CertificateWatch([calls.context, database.tls], clock),
        metrics=metrics,
        limiter=_limiter(context, authenticator, logins, facade=cloud.facade, callbacks=callbacks),
        common=common,
        media=media,
        media_watch=media_watch,
        facade=cloud.facade,
        sending_limits=cloud.limits,
        console=console,
    )


def _context(
    settings: Settings,
    database: Database,
    shard_map: ShardMap,
    calls: exposure.LinkCalls,
    *,
    files: FileStore,
    clock: Clock,
) -> WebappContext:
    numbers = Numbers(database, settings.account, settings.number_hosts)
    return WebappContext(
        settings=settings,
        database=database,
        files=files,
        clock=clock,
        changes=Watch(database),
        numbers=numbers,
        links=CoreappLinks(
            shard_map,
            settings.secrets.link_key,
            owner_timeout=settings.owner_timeout,
            timeout=settings.coreapp_timeout,
            calls=calls,
            block_of=numbers.block_of,
        ),
        guard=EgressGuard(settings.outgoing_webhooks),
        safe=SecretSealer(*settings.secrets.settings_key.keys, read=settings.secrets.settings_key.read),
    )


def _common(context: WebappContext) -> Common:
    settings, database, clock = context.settings, context.database, context.clock
    token_blocks = TokenBlocks(database, clock)

    def share(name: str, rate: float, burst: float) -> SharedLimit:
        return SharedLimit(name, rate, burst, clock=clock, wake=token_blocks.wake)

    def limits(account: str) -> RateLimits:
        # The buckets of the first number have names without it, as in releases that had one number.
        of_number = "" if account == settings.account else f" {account}"
        messages = share(f"messages{of_number}", settings.messages_rate, settings.messages_burst)
        marks = share(f"marks{of_number}", settings.messages_rate, settings.messages_burst)
        contacts = share(f"contacts{of_number}", settings.contacts_rate, settings.contacts_burst)
        token_blocks.serve(messages, marks, contacts)
        return RateLimits(
            messages=Limit(messages, "messages", account),
            marks=Limit(marks, "marks", account),
            contacts=Limit(contacts, "contacts", account),
        )

    by_number = NumberLimits(limits)
    by_number.of(settings.account)
    membership = WebappMembership(database, f"{settings.node}:{settings.address[1]}", token_blocks.set_members)
    context.changes.on_poll(membership.poll)
    return Common(membership=membership, token_blocks=token_blocks, limits=by_number, changes=context.changes)


def _tls(context: WebappContext) -> ServerTLS | None:
    settings = context.settings
    if not settings.tls:
        return None
    own = tls.server("api_inside", settings.tls_files) if settings.tls_files.chain else None
    names, clock = settings.tls_names, context.clock
    return ServerTLS(context.database, settings.account, safe=context.safe, names=names, clock=clock, own=own)


def _maintenance(context: WebappContext, tokens: Tokens, logins: Logins, tls: ServerTLS | None) -> Maintenance:
    """Register the polls for changed cached data, and create the maintenance tasks."""
    watch = context.changes
    watch.on(changes.TOKENS, tokens.poll)
    watch.on(changes.LOGINS, logins.guessing.poll)
    watch.on(changes.NUMBERS, context.numbers.poll)
    tasks = {"tokens": RevocationMaintenance(tokens, context.clock).run_once, "logins": logins.guessing.sweep}
    if tls is not None:
        watch.on(changes.CERTIFICATES, tls.load)
        # A generated certificate expires, so it is checked regularly.
        tasks["certificate"] = tls.load
    return Maintenance(tasks)


def _limiter(
    context: WebappContext,
    authenticator: Authenticator,
    logins: Logins,
    *,
    facade: Facade | None,
    callbacks: UpstreamCallbacks,
) -> ConnectionLimiter:
    settings = context.settings

    def sends(path: str) -> bool:
        return path == envelope.MESSAGES or (facade is not None and facade.sends(path))

    return ConnectionLimiter(
        settings.unauthenticated,
        context.clock,
        connections=affordable(settings.connections, settings.unauthenticated),
        trusted=settings.trusted_proxies,
        recognise=lambda header: authenticator.recognises(header) or logins.credentials.recognises(header),
        recognise_path=callbacks.recognises,
        key_header=webapp.api.d360.layer.KEY,
        tls=settings.tls,
        urgent=envelope.MONITORED,
        is_overloaded=lambda path, delay: sends(path) and context.links.connections.is_overloaded(delay),
    )


def _server(
    settings: Settings, parts: Parts, app: ASGIApp, listener: socket.socket, started: Callable[[], None]
) -> server.HTTPServer:
    """Create the server of `app`, which consists of `parts` and perhaps further layers."""
    return server.HTTPServer(
        app,
        [listener],
        started,
        limiter=parts.limiter,
        hosts=Hosts(settings.allowed_hosts),
        tls=parts.tls.context if parts.tls else None,
        dialect=parts.facade,
    )


async def run(
    settings: Settings,
    stop: asyncio.Event,
    ready: Callable[[Any], None] | None = None,
    *,
    show: Callable[[str], None] = lambda secret: None,
) -> None:
    """Serve until `stop`.

    Raises `SettingsError` when the address is in use or the database belongs to another number,
    `PendingMigrations`, and `ServiceFailed`.

    ready: called with a `ServingAddress` once requests are accepted; `None` for no call
    show: called with a line for the terminal that must not be logged
    """
    listener = server.listen(*settings.address)
    database = Database(settings.database, "business", deadline=DATABASE_SECONDS, max_retry_seconds=DATABASE_SECONDS)
    hasher = Hasher()
    files = open_store(settings.media_dir, settings.media_bucket, reserve=settings.media_reserve)
    try:
        await schema.prepare(database, migrate=settings.embedded)
        await accounts.require_number(database, settings.account)
        data_directory.require_number(settings.data_dir, settings.account)
        await checks.require_settings(database, settings.secrets.settings_key)
        await checks.require_link(database, settings.secrets.link_key)
        await checks.require_tokens(database, settings.secrets.jwt_key)
        shard_map = FixedShardMap(*settings.coreapp) if settings.coreapp else DatabaseShardMap(database)
        parts = assemble(settings, database, shard_map, hasher, SystemClock(), files=files)
        await parts.numbers.start(retry_seconds=DATABASE_SECONDS)
        if settings.cloud_api:
            await parts.sending_limits.poll()
        await parts.media.claim()
        await parts.common.membership.start()
        if made := await parts.logins.start():
            show(SHOWN_ONCE.format(made))
        host, port = listener.getsockname()[:2]
        if parts.tls is not None:
            await parts.tls.load()
        url = f"http{'s' if parts.tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"

        def started() -> None:
            log.info("http.listening", extra={"url": url})
            if ready is not None:
                ready(ServingAddress(url, host, port, settings.console))

        taps = [Tap(settings.tap)] if settings.tap is not None else []
        app = taps[0].layer(parts.app) if taps else parts.app
        http = _server(settings, parts, app, listener, started)
        parts.metrics.watch(http.load)
        services: list[service.Service] = [*taps, parts.links.connections, parts.maintenance, parts.logins.first_start]
        services += [parts.certificates, parts.media_watch]
        services.append(ReachReport(database, parts.links, parts.common.membership.webapp.incarnation))
        services += [parts.common.membership, parts.common.token_blocks, parts.common.changes]
        services.append(Vitals({"data": settings.data_dir, "media": settings.media_disk}))
        await service.run_services([*services, *parts.console.services, http, *parts.console.last], stop)
    finally:
        listener.close()
        hasher.close()
        await files.close()
        await database.close()
