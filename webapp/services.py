"""Wiring and life cycle of a Webapp."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

import webapp.api.d360.layer
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
from tidings.keys.media_links import MediaLinks
from tidings.net import exposure, tls
from tidings.net.tls import CertificateWatch
from tidings.objects import identity
from tidings.objects.identity import StoreIdentity
from tidings.objects.store import FileStore
from tidings.objects.stores import open_store
from tidings.objects.watch import StoreWatch
from tidings.observability.readiness import Readiness
from tidings.observability.vitals import Vitals
from tidings.storage import schema
from tidings.storage.business import accounts, changes
from tidings.storage.database import Database
from tidings.testing.faults import FaultFile
from tidings.wire.cloud.identity import IdentityDirectory, derive
from webapp.api.account.service import RegistrationService
from webapp.api.application_settings.service import AccountSettings
from webapp.api.backup.service import Backups
from webapp.api.business_encryption import FlowKeys
from webapp.api.certificates.service import Certificates
from webapp.api.cloud.access import CloudAccess, OpenAccess
from webapp.api.cloud.block_list import BlockList
from webapp.api.cloud.facade import Facade
from webapp.api.cloud.limits import NumberSendingLimits, SendingLimits
from webapp.api.cloud.management_calls import ManagementCalls
from webapp.api.cloud.number_settings import CloudNumberSettings
from webapp.api.cloud.pictures import PictureLinks
from webapp.api.cloud.qr_code_list import QrCodeList
from webapp.api.cloud.settings_changes import SettingsChanges
from webapp.api.cloud.subscriptions import Subscriptions
from webapp.api.cloud.upload_sessions import UploadSessions
from webapp.api.cloud.users import CloudUsers
from webapp.api.cloud.verification import CallbackVerifier
from webapp.api.compliance.service import ComplianceInfo
from webapp.api.contacts.service import ContactChecks
from webapp.api.documents import Assets, OpenApiDocument
from webapp.api.garbage import Collections
from webapp.api.groups.service import GroupService
from webapp.api.health.readiness import SendingNeeds
from webapp.api.health.service import HealthCheck
from webapp.api.media.references import References
from webapp.api.media.service import MediaStore
from webapp.api.media_providers.service import ProviderList
from webapp.api.messages.received import ReceivedMessages
from webapp.api.messages.routes import MESSAGES_PATH
from webapp.api.messages.service import Messages
from webapp.api.metrics.service import ProcessMetrics
from webapp.api.profile.service import ProfileService
from webapp.api.profile.upstream import UpstreamProfiles
from webapp.api.stats.service import Stats
from webapp.api.stickerpacks.service import Stickerpacks
from webapp.api.support import Support
from webapp.api.templates.review import TemplateReview
from webapp.api.templates.service import Templates
from webapp.api.templates.upstream_changes import UpstreamChanges
from webapp.api.testing.mode import TestMode
from webapp.api.testing.robots_link import RobotsLink
from webapp.api.testing.rules import NumberRules
from webapp.api.upstream.service import UpstreamCallbacks
from webapp.api.users import wiring
from webapp.api.users.passwords import Hasher
from webapp.api.users.wiring import Logins
from webapp.auth.authenticator import Authenticator, Limit, NumberLimits, RateLimits
from webapp.auth.idempotency import FirstAnswers
from webapp.auth.numbers import Numbers
from webapp.auth.tokens import RevocationMaintenance, Tokens
from webapp.console import console_wiring
from webapp.console.console_wiring import ConsoleParts
from webapp.coreapps.links import CoreappLinks
from webapp.coreapps.reach_report import ReachReport
from webapp.coreapps.shard_map import DatabaseShardMap, FixedShardMap, ShardMap
from webapp.http import envelope, server
from webapp.http.application import LayeredApplication
from webapp.http.bodies import BodyLimit
from webapp.http.tap import Tap
from webapp.http.tls import ServerTLS
from webapp.membership import WebappMembership
from webapp.rate_limits.leases import Leases
from webapp.rate_limits.shared_limits import SharedLimit
from webapp.settings import Settings

INTERVAL = 60.0  # seconds


class Maintenance:
    """Service that runs named maintenance tasks. A failed task does not prevent the others."""

    name = "upkeep"

    def __init__(self, chores: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
        self._chores = chores

    async def run(self, stop: asyncio.Event) -> None:
        while not await service.wait_for(stop, INTERVAL):
            await self.run_once()

    async def run_once(self) -> None:
        for name, chore in self._chores.items():
            try:
                await chore()
            except Exception as error:
                log.warning("upkeep.failed", extra={"chore": name, "error": repr(error)[:200]})


log = logging.getLogger(__name__)

# Seconds that a request waits for the database, including for a connection, before the response is 503.
DATABASE_SECONDS = 4.0
HIGH_THROUGHPUT = 1_000.0  # messages per second of a number after the upgrade
SHOWN_ONCE = "First password of admin, to be changed at the first login and shown only now: {}"


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
    leases: Leases
    limits: NumberLimits
    cloud_limits: NumberSendingLimits
    changes: Watch


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts that `run` starts and tests inspect."""

    app: LayeredApplication
    links: CoreappLinks
    tokens: Tokens
    maintenance: Maintenance
    logins: Logins
    templates: Templates
    numbers: Numbers
    hasher: Hasher
    tls: ServerTLS | None
    certificates: CertificateWatch
    metrics: ProcessMetrics
    limiter: ConnectionLimiter
    common: Common
    media: StoreIdentity
    media_watch: StoreWatch
    facade: Facade | None
    console: ConsoleParts


def assemble(
    settings: Settings, database: Database, shard_map: ShardMap, hasher: Hasher, clock: Clock, *, files: FileStore
) -> Parts:
    """Create all parts of a Webapp without starting them. Raises `UnusableCertificate`."""
    calls = exposure.link_calls(settings.tls_files, settings.plaintext, settings.coreapp_tls_name)
    numbers = Numbers(database, settings.account, settings.number_hosts)
    common = _common(settings, database, numbers, clock)
    tokens = Tokens(database, settings.secrets.jwt_key, clock)
    links = _links(settings, shard_map, calls, numbers)
    logins = _logins(settings, database, numbers=numbers, tokens=tokens, hasher=hasher, clock=clock)
    safe = SecretSealer(*settings.secrets.settings_key.keys, read=settings.secrets.settings_key.read)
    callbacks = _upstream_callbacks(settings, common.changes, database, links, safe=safe, clock=clock)
    templates = _templates(settings, database, clock, numbers=numbers, links=links)
    tls = _tls(settings, database, safe, clock)
    media = identity.of_media(database, files)
    media_watch = StoreWatch(media)
    metrics = ProcessMetrics(clock, backlog=BACKLOG)
    is_local = env.is_loopback(settings.address[0])
    authenticator = Authenticator(tokens, settings.api_key, clock, numbers=numbers, is_local=is_local)
    directory, access = _cloud_access(settings, numbers)
    facade = _facade(settings, database, directory, access, clock=clock)
    testing, rules = _test_mode(settings, links, access)
    console = console_wiring.wire(settings, database, links, authenticator, numbers, testing, calls=calls, clock=clock)
    app = webapp.app.create(
        [
            *(authenticator, tokens, common.limits, common.cloud_limits, logins.users, templates, metrics),
            Certificates(database, links, safe=safe, server=tls, clock=clock),
            *_files(settings, database, links, files, clock),
            Readiness(SendingNeeds(links, database, media_watch).look, clock),
            *_resources(settings, database, links, safe, clock, numbers=numbers, directory=directory),
            *_sending(database, links, templates, safe, clock, rules=rules),
            *(callbacks, numbers, RegistrationService(database, links, hasher), BodyLimit(settings.max_body)),
            *console.parts,
        ],
        max_requests=settings.max_requests,
        open_metrics=is_local and not settings.api_key,
        only_login=logins.only_login,
        facade=facade,
        testing=testing,
        console=console.site,
    )
    polls = _maintenance(common.changes, tokens, logins, numbers=numbers, templates=templates, tls=tls, clock=clock)
    return Parts(
        app=app,
        links=links,
        tokens=tokens,
        maintenance=polls,
        logins=logins,
        templates=templates,
        numbers=numbers,
        hasher=hasher,
        tls=tls,
        certificates=CertificateWatch([calls.context, database.tls], clock),
        metrics=metrics,
        limiter=_limiter(settings, authenticator, logins, links=links, facade=facade, callbacks=callbacks, clock=clock),
        facade=facade,
        console=console,
        common=common,
        media=media,
        media_watch=media_watch,
    )


def _templates(
    settings: Settings, database: Database, clock: Clock, *, numbers: Numbers, links: CoreappLinks
) -> Templates:
    review = TemplateReview(settings.template_review_ms)
    return Templates(
        database,
        settings.account,
        clock,
        review=review,
        upstream=UpstreamChanges(database, links),
        owner_of=numbers.waba_owner,
    )


def _upstream_callbacks(
    settings: Settings, watch: Watch, database: Database, links: CoreappLinks, *, safe: SecretSealer, clock: Clock
) -> UpstreamCallbacks:
    callbacks = UpstreamCallbacks(database, links, safe=safe, clock=clock, standin_prefix=str(settings.cloud_standin))
    watch.on(changes.UPSTREAMS, callbacks.poll)
    return callbacks


def _cloud_access(settings: Settings, numbers: Numbers) -> tuple[IdentityDirectory, CloudAccess]:
    """Return the ids of all numbers in the Cloud API, and the check of its tokens."""
    directory = IdentityDirectory([])
    numbers.watch(
        lambda accounts: directory.replace(derive(account, numbers.waba_owner(account)) for account in accounts)
    )
    return directory, CloudAccess(OpenAccess(directory, numbers, settings.account) if settings.cloud_open else None)


def _facade(
    settings: Settings, database: Database, directory: IdentityDirectory, access: CloudAccess, *, clock: Clock
) -> Facade | None:
    """Create the Cloud API; return `None` when it is off."""
    if not settings.cloud_api:
        return None
    status = settings.cloud_throttle_status
    calls = ManagementCalls(database, clock, throttle_status=status) if settings.cloud_management_limit else None
    return Facade(directory, access, throttle_status=status, management=calls)


def _logins(
    settings: Settings, database: Database, *, numbers: Numbers, tokens: Tokens, hasher: Hasher, clock: Clock
) -> Logins:
    first, account = settings.first_password, settings.account
    return wiring.wire(database, account, first, numbers=numbers, tokens=tokens, hasher=hasher, clock=clock)


def _tls(settings: Settings, database: Database, safe: SecretSealer, clock: Clock) -> ServerTLS | None:
    if not settings.tls:
        return None
    own = tls.server("api_inside", settings.tls_files) if settings.tls_files.chain else None
    return ServerTLS(database, settings.account, safe=safe, names=settings.tls_names, clock=clock, own=own)


def _test_mode(
    settings: Settings, links: CoreappLinks, access: CloudAccess
) -> tuple[TestMode | None, NumberRules | None]:
    """Create the test mode and the effects of test numbers; return `None` for both when it is off."""
    if not settings.testing:
        return None, None
    robots = RobotsLink(settings.data_dir)
    mode = TestMode(
        robots=robots,
        faults=FaultFile(settings.data_dir),
        coreapps=links,
        hosts=Hosts(settings.allowed_hosts),
        access=access,
        embedded=settings.embedded,
        with_user_ids=settings.cloud_user_ids,
    )
    return mode, NumberRules(robots)


def _sending(
    database: Database,
    links: CoreappLinks,
    templates: Templates,
    safe: SecretSealer,
    clock: Clock,
    *,
    rules: NumberRules | None,
) -> list[object]:
    """Create the services of contacts and messages."""
    messages = Messages(
        links,
        templates=templates,
        media=References(database, safe, clock),
        first_answers=FirstAnswers(database, clock),
        received=ReceivedMessages(database),
        rehearsal=rules,
    )
    return [ContactChecks(links, rules), messages]


def _common(settings: Settings, database: Database, numbers: Numbers, clock: Clock) -> Common:
    leases = Leases(database, clock)

    def share(name: str, rate: float, burst: float) -> SharedLimit:
        return SharedLimit(name, rate, burst, clock=clock, wake=leases.wake)

    def limits(account: str) -> RateLimits:
        # The buckets of the first number have names without it, as in releases that had one number.
        of_number = "" if account == settings.account else f" {account}"
        messages = share(f"messages{of_number}", settings.messages_rate, settings.messages_burst)
        marks = share(f"marks{of_number}", settings.messages_rate, settings.messages_burst)
        contacts = share(f"contacts{of_number}", settings.contacts_rate, settings.contacts_burst)
        leases.serve(messages, marks, contacts)
        return RateLimits(
            messages=Limit(messages, "messages", account),
            marks=Limit(marks, "marks", account),
            contacts=Limit(contacts, "contacts", account),
        )

    by_number = NumberLimits(limits)
    by_number.of(settings.account)
    membership = WebappMembership(database, f"{settings.node}:{settings.address[1]}", leases.set_members)
    watch = Watch(database)
    watch.look(membership.look)
    sending = NumberSendingLimits(
        database,
        clock,
        SendingLimits(settings.cloud_pair_limit, settings.cloud_tier),
        owner_of=numbers.waba_owner,
        set_throughput=functools.partial(_set_throughput, settings, by_number),
    )
    if settings.cloud_api:
        watch.on(changes.CLOUD_LIMITS, sending.poll)
    return Common(
        membership=membership,
        leases=leases,
        limits=by_number,
        cloud_limits=sending,
        changes=watch,
    )


def _set_throughput(settings: Settings, limits: NumberLimits, account: str, is_high: bool) -> None:
    """Set the rate of messages of a number, which v1 shares. Without a limit there is none."""
    rate, burst = settings.messages_rate, settings.messages_burst
    if rate:
        least = HIGH_THROUGHPUT if is_high else 0.0
        limits.of(account).messages.share.set_rate(max(rate, least), max(burst, least))


def _links(settings: Settings, shard_map: ShardMap, calls: exposure.LinkCalls, numbers: Numbers) -> CoreappLinks:
    return CoreappLinks(
        shard_map,
        settings.secrets.link_key,
        patience=settings.coreapp_patience,
        timeout=settings.coreapp_timeout,
        calls=calls,
        block_of=numbers.block_of,
    )


def _maintenance(
    watch: Watch,
    tokens: Tokens,
    logins: Logins,
    *,
    numbers: Numbers,
    templates: Templates,
    tls: ServerTLS | None,
    clock: Clock,
) -> Maintenance:
    """Register the polls for changed cached data, and create the maintenance tasks."""
    watch.on(changes.TOKENS, tokens.poll)
    watch.on(changes.LOGINS, logins.guessing.poll)
    watch.on(changes.TEMPLATES, templates.run_once)
    watch.on(changes.NUMBERS, numbers.poll)
    chores = {"tokens": RevocationMaintenance(tokens, clock).run_once, "logins": logins.maintenance.run_once}
    if tls is not None:
        watch.on(changes.CERTIFICATES, tls.load)
        # A generated certificate expires, so it is checked regularly.
        chores["certificate"] = tls.load
    return Maintenance(chores)


def _limiter(
    settings: Settings,
    authenticator: Authenticator,
    logins: Logins,
    *,
    links: CoreappLinks,
    facade: Facade | None,
    callbacks: UpstreamCallbacks,
    clock: Clock,
) -> ConnectionLimiter:
    def sends(path: str) -> bool:
        return path == MESSAGES_PATH or (facade is not None and facade.sends(path))

    return ConnectionLimiter(
        settings.unauthenticated,
        clock,
        connections=affordable(settings.connections, settings.unauthenticated),
        trusted=settings.trusted_proxies,
        recognise=lambda header: authenticator.recognises(header) or logins.credentials.recognises(header),
        recognise_path=callbacks.recognises,
        key_header=webapp.api.d360.layer.KEY,
        tls=settings.tls,
        urgent=envelope.MONITORED,
        is_overloaded=lambda path, delay: sends(path) and links.is_overloaded(delay),
    )


def _files(settings: Settings, database: Database, links: CoreappLinks, files: FileStore, clock: Clock) -> list[object]:
    """Create the services of files, of resumable uploads and of profiles, which have photos."""
    media = MediaStore(database, files, clock, max_uploads=settings.max_uploads)
    uploads = UploadSessions(database, files, media, clock=clock, max_uploads=settings.max_uploads)
    return [media, uploads, ProfileService(database, UpstreamProfiles(database, links, files))]


def _resources(
    settings: Settings,
    database: Database,
    links: CoreappLinks,
    safe: SecretSealer,
    clock: Clock,
    *,
    numbers: Numbers,
    directory: IdentityDirectory,
) -> list[object]:
    """Create the services of resources that no other part uses."""
    guard = EgressGuard(settings.outgoing_webhooks)
    announced = SettingsChanges(database, links)
    return [
        AccountSettings(database, links, guard, safe=safe, statuses_per_post=settings.statuses_per_post),
        ComplianceInfo(database),
        FlowKeys(database),
        Backups(database, links, safe=safe, guard=guard, clock=clock),
        ProviderList(database, safe),
        Stickerpacks(database),
        HealthCheck(links, database),
        Collections(links),
        GroupService(links),
        Support(database, links, data_dir=settings.data_dir, media_dir=_disk_of_media(settings), clock=clock),
        Stats(database, links, clock),
        OpenApiDocument(),
        Assets(),
        MediaLinks(settings.secrets.link_key, clock),
        PictureLinks(settings.secrets.link_key),
        Subscriptions(database, clock, announced, safe=safe, directory=directory),
        BlockList(database, clock, announced),
        QrCodeList(database, clock),
        CloudNumberSettings(database, announced),
        CloudUsers(database, enabled=settings.cloud_user_ids, owner_of=numbers.waba_owner),
        CallbackVerifier(database, guard),
    ]


def _disk_of_media(settings: Settings) -> Path:
    """Return a directory on the disk that uploads fill. With a bucket they fill none."""
    return settings.data_dir if settings.media_bucket else settings.media_dir


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
    database = Database(settings.database, "business", deadline=DATABASE_SECONDS, patience=DATABASE_SECONDS)
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
        await parts.numbers.start(patience=DATABASE_SECONDS)
        if settings.cloud_api:
            await parts.common.cloud_limits.poll()
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
        services: list[service.Service] = [*taps, parts.links, parts.maintenance, parts.logins.first_start]
        services += [parts.certificates, parts.media_watch]
        services.append(ReachReport(database, parts.links, parts.common.membership.webapp.incarnation))
        services += [parts.common.membership, parts.common.leases, parts.common.changes]
        services.append(Vitals({"data": settings.data_dir, "media": _disk_of_media(settings)}))
        await service.run_services([*services, *parts.console.services, http, *parts.console.last], stop)
    finally:
        listener.close()
        hasher.close()
        await files.close()
        await database.close()
