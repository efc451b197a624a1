"""Wiring of a process with robots."""

from __future__ import annotations

import asyncio
import logging

from handset.devices import lock
from handset.devices.context import FleetContext
from handset.devices.prekey_refill import PreKeyRefill
from handset.devices.prekey_rotation import PreKeyRotation
from handset.devices.registration import DeviceRegistry
from handset.devices.row_sealer import RowSealer
from handset.fleet import Fleet
from handset.robots import robots
from handset.robots.checking import FileChecker
from handset.robots.control import RecipientControl
from handset.robots.recipients import TestRecipients
from handset.robots.registrar import Reregistration, RobotRegistrar
from handset.robots.robots import Invitations, Robots
from handset.settings import FAMILY, RobotsSettings
from handset.shown_log import ShownLog
from tidings.aio.clock import SystemClock
from tidings.aio.service import Service, run_services
from tidings.client import transports
from tidings.client.http import NetworkApi
from tidings.installation import network_access
from tidings.net.tls import CertificateWatch
from tidings.storage import schema
from tidings.storage.database import Database

log = logging.getLogger(__name__)


async def run_robots(settings: RobotsSettings, stop: asyncio.Event, ready: asyncio.Event) -> None:
    """Run all robots until `stop`. `ready` is set when they are registered and logged in.

    Raises `AlreadyRunning`, `Unauthorized` for a wrong registration key, `PendingMigrations`, `CorruptState` when
    the store was sealed under another key, and `ServiceFailed`.
    """
    database, clock = Database(settings.database, FAMILY), SystemClock()
    sealer, spacing = RowSealer(settings.secrets.handset_key.keys[0]), settings.commit_ms / 1000
    context = FleetContext(robots.FLEET, database, sealer, clock, spacing=spacing)
    with lock.only_one(settings.data_dir, robots.FLEET):
        application = Robots(ShownLog(settings.log_path, clock, limit=settings.log_limit), prefixes=settings.prefixes)
        try:
            await schema.prepare(database, migrate=settings.embedded)
            tls = network_access.make_context(settings.network_files, *settings.endpoints())
            async with NetworkApi(settings.http_url, tls=tls) as api:
                await _run(settings, context, api, application=application, stop=stop, ready=ready)
        finally:
            application.close()
            await database.close()


async def _run(
    settings: RobotsSettings,
    context: FleetContext,
    api: NetworkApi,
    *,
    application: Robots,
    stop: asyncio.Event,
    ready: asyncio.Event,
) -> None:
    registry = DeviceRegistry(context, api)
    key, prefixes = settings.secrets.registration_key, settings.prefixes
    registrar = RobotRegistrar(registry, key, one_time=settings.prekeys, block=settings.block, prefixes=prefixes)
    devices = await registrar.register_all(robots.numbers(settings.kinds, settings.per_kind, prefixes), stop)
    if stop.is_set():
        return
    online = [device for device in devices if registrar.is_online(device)]
    dials = [transports.tcp(*settings.tcp_address, tls=api.tls if settings.tcp_tls else None)] * settings.connections
    fleet = Fleet(context, online, application, dials=dials, api=api)
    refill = PreKeyRefill(registry, one_time=settings.prekeys, kyber_one_time=0)
    rotation = PreKeyRotation(registry, {device.number: device for device in devices})
    offline = [device for device in devices if not registrar.is_online(device)]
    reregistration = Reregistration(registrar, fleet.log_in, offline=offline)
    checker, invitations = FileChecker(api, fleet.devices), Invitations(fleet.groups)
    application.subscribe(checker.offer)
    application.subscribe(invitations.offer)
    fleet.observe(refill)
    fleet.observe(reregistration)
    log.info("robots.started", extra={"registered": len(devices), "online": len(online), "log": settings.log_path})
    announcing = asyncio.create_task(_announce(fleet, ready, len(online)), name="announce")
    watch = CertificateWatch([context.database.tls, api.tls], context.clock)
    services: list[Service] = [watch, refill, rotation, reregistration, checker, invitations, fleet]
    if settings.testing:
        never = frozenset(device.number for device in offline)
        controlled = TestRecipients(context, fleet, registrar, api=api, typing=application.typing, offline=never)
        services.append(RecipientControl(settings.data_dir, controlled.respond))
    try:
        await run_services(services, stop)
    finally:
        announcing.cancel()


async def _announce(fleet: Fleet, ready: asyncio.Event, online: int) -> None:
    await fleet.ready.wait()
    log.info("robots.ready", extra={"online": online})
    ready.set()
