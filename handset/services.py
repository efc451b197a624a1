"""Puts the parts of a handset process together."""

from __future__ import annotations

import asyncio
import logging

from handset.devices import lock
from handset.devices.prekey_refill import Refill
from handset.devices.prekey_rotation import Rotation
from handset.devices.registration import Enrolment
from handset.devices.vault import Vault
from handset.fleet import Fleet
from handset.robots import robots
from handset.robots.checking import Checker
from handset.robots.invitations import Invitations
from handset.robots.robots import Robots
from handset.robots.roster import Roster
from handset.settings import FAMILY, RobotsSettings
from handset.shown_log import ShownLog
from tidings.client import transports
from tidings.client.http import NetworkApi
from tidings.runtime.clock import SystemClock
from tidings.runtime.service import Service, run_services
from tidings.storage import schema
from tidings.storage.database import Database

log = logging.getLogger(__name__)


async def run_robots(settings: RobotsSettings, stop: asyncio.Event, ready: asyncio.Event) -> None:
    """Run all robots until `stop`; `ready` is set when they are registered and logged in.

    Raises `AlreadyRunning`, `Unauthorized` for a wrong registration key, `PendingMigrations`, `CorruptState` for
    another master key, and `ServiceFailed`.
    """
    clock = SystemClock()
    database = Database(settings.database, FAMILY)
    with lock.only_one(settings.data_dir, robots.FLEET):
        shown_log = ShownLog(settings.log_path, clock, limit=settings.log_limit)
        try:
            await schema.prepare(database, migrate=settings.embedded)
            async with NetworkApi(settings.http_url) as api:
                await _run(settings, database, shown_log, api, stop, ready)
        finally:
            shown_log.close()
            await database.close()


async def _run(
    settings: RobotsSettings,
    database: Database,
    shown_log: ShownLog,
    api: NetworkApi,
    stop: asyncio.Event,
    ready: asyncio.Event,
) -> None:
    vault = Vault(settings.secrets.master_key)
    enrolment = Enrolment(robots.FLEET, database, vault, api)
    roster = Roster(
        enrolment,
        settings.secrets.registration_key,
        one_time=settings.prekeys,
        block=settings.block,
        prefixes=settings.prefixes,
    )
    devices = await roster.enrol(robots.numbers(settings.kinds, settings.per_kind, settings.prefixes), stop)
    if stop.is_set():
        return
    online = [device for device in devices if roster.is_online(device)]
    refill = Refill(enrolment, one_time=settings.prekeys, kyber_one_time=0)
    checker = Checker(api, {device.number: device for device in online})
    application = Robots(shown_log, [checker.offer], prefixes=settings.prefixes)
    fleet = Fleet(
        robots.FLEET,
        database,
        online,
        vault,
        application,
        [transports.tcp(*settings.tcp_address)] * settings.connections,
        prekeys_low=refill.want,
        unauthorized=roster.void,
        api=api,
    )
    invitations = Invitations(fleet.groups)
    application.got.append(invitations.offer)
    roster.log_in = fleet.log_in
    log.info("robots.started", extra={"registered": len(devices), "online": len(online), "log": settings.log_path})
    announcing = asyncio.create_task(_announce(fleet, ready, len(online)), name="announce")
    rotation = Rotation(enrolment, {device.number: device for device in devices})
    services: list[Service] = [refill, rotation, roster, checker, invitations, fleet]
    try:
        await run_services(services, stop)
    finally:
        announcing.cancel()


async def _announce(fleet: Fleet, ready: asyncio.Event, online: int) -> None:
    await fleet.ready.wait()
    log.info("robots.ready", extra={"online": online})
    ready.set()
