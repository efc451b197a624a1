"""Wiring of the console: its parts, and its services."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tidings.aio.clock import Clock
from tidings.aio.service import Service
from tidings.http.hosts import Hosts
from tidings.net.exposure import LinkCalls
from tidings.pages.assets import PageAssets
from tidings.pages.event_streams import EventStreams
from tidings.storage.database import Database
from webapp.api.testing.mode import TestMode
from webapp.auth.authenticator import Authenticator
from webapp.auth.numbers import Numbers
from webapp.console.access.entry_link import EntryLink
from webapp.console.access.sessions import SessionCookies
from webapp.console.figures.doctor_runs import DoctorRuns
from webapp.console.figures.processes import NumberShards, ProcessList
from webapp.console.figures.recorder import FiguresRecorder
from webapp.console.layer import STATIC, ConsoleSite
from webapp.console.operations.bulk_changes import BulkChanges
from webapp.console.operations.operator_link import OperatorLink
from webapp.console.parts import ConsoleTables, FaultCount
from webapp.console.render.pages import PageTemplates
from webapp.console.streams import StreamsEnd
from webapp.coreapps.interfaces import AllCoreapps
from webapp.settings import Settings


@dataclasses.dataclass(frozen=True, slots=True)
class ConsoleParts:
    """The console of one Webapp."""

    site: ConsoleSite | None  # `None` when it is off
    parts: Sequence[object] = ()  # what handlers find by its class
    services: Sequence[Service] = ()  # services that run with the server
    last: Sequence[Service] = ()  # services that end before the server, which waits for requests


def wire(
    settings: Settings,
    database: Database,
    coreapps: AllCoreapps,
    authenticator: Authenticator,
    numbers: Numbers,
    testing: TestMode | None,
    *,
    calls: LinkCalls,
    clock: Clock,
) -> ConsoleParts:
    """Create the console if it is on."""
    if not settings.console:
        return ConsoleParts(None)
    assets, streams = PageAssets(STATIC, ("tidings.pages", "webapp.console")), EventStreams()
    faults = FaultCount(testing.faults) if testing is not None else None
    cookies = SessionCookies(settings.secrets.jwt_key, authenticator, clock)
    link = OperatorLink(database, calls, link_key=settings.secrets.link_key, operator_key=str(settings.console_key))
    shards = NumberShards(database, numbers.known_block_of)
    changes, recorder = BulkChanges(database, link, shards), FiguresRecorder(coreapps, clock)
    doctor = DoctorRuns(clock, everything=settings.embedded)
    site = ConsoleSite(
        hosts=Hosts(settings.allowed_hosts),
        cookies=cookies,
        templates=PageTemplates(assets),
        assets=assets,
        streams=streams,
        account=settings.account,
        faults=faults,
    )
    parts: list[object] = [
        cookies,
        link,
        changes,
        recorder,
        EntryLink(str(settings.console_link), clock),
        ConsoleTables(database),
        shards,
        ProcessList(database, coreapps, settings.data_dir),
        doctor,
    ]
    if faults is not None:
        parts.append(faults)
    return ConsoleParts(site, parts, [recorder, changes, doctor], [StreamsEnd(streams)])
