"""State that the services of all APIs of one Webapp share."""

from __future__ import annotations

import dataclasses

from tidings.aio.clock import Clock
from tidings.changes.watch import Watch
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.egress.guard import EgressGuard
from tidings.objects.store import FileStore
from tidings.storage.database import Database
from webapp.auth.numbers import Numbers
from webapp.coreapps.links import CoreappLinks
from webapp.settings import Settings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WebappContext:
    """Settings, database, files, clock, numbers and Coreapps of one Webapp, from which each API is wired."""

    settings: Settings
    database: Database
    files: FileStore  # uploaded files
    clock: Clock
    changes: Watch  # calls functions after changes by other processes
    numbers: Numbers
    links: CoreappLinks
    guard: EgressGuard  # guard of requests to hosts that clients name
    safe: SecretSealer  # encryption of secrets in the database
