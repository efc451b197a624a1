"""Webapp with a console, a scripted Coreapp that owns shard 0, and a browser that is logged in."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import pytest

from tests.webapp.conftest import Serve, Served
from tests.webapp.console.browser import Browser
from tests.webapp.console.lists import found_part
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.secrets.api_key import ApiKey
from tidings.storage.business import shards
from tidings.storage.database import Database
from webapp.console.figures.doctor_runs import DoctorRuns
from webapp.console.operations.bulk_changes import BulkChanges

OPERATOR_KEY = ApiKey("operator key of the tests")
NUMBER = "15550000000"
# Output of `tidings doctor --json`.
FINDINGS = {
    "status": "error",
    "findings": [
        {"check": "schema", "level": "fine", "text": "revision 0040", "remedy": None},
        {"check": "disk", "level": "warning", "text": "9 % free", "remedy": "delete files"},
        {"check": "webhook", "level": "error", "text": "<i>no answer</i>", "remedy": "check that it runs"},
    ],
}


@pytest.fixture
async def console(serve: Serve, coreapp: FakeCoreapp, database: Database) -> AsyncIterator[Served]:
    """Webapp in test mode whose administrator has changed the first password; shard 0 belongs to `coreapp`."""
    served = await serve(console=True, console_key=OPERATOR_KEY, testing=True)
    await served.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    await own_shard(database, coreapp)
    doctor = next(part for part in served.parts.console.parts if isinstance(part, DoctorRuns))
    doctor._command = (sys.executable, "-c", f"print({json.dumps(FINDINGS)!r})")
    yield served
    await end_changes(served)
    await doctor.close()


async def end_changes(console: Served) -> None:
    """End the changes in progress, as the stop of the Webapp does."""
    stop = asyncio.Event()
    stop.set()
    await found_part(console, BulkChanges).run(stop)


async def own_shard(database: Database, coreapp: FakeCoreapp) -> None:
    """Record the scripted Coreapp as the owner of shard 0."""
    async with database.transaction() as connection:
        await shards.create_shards(connection, 1)
        await shards.claim(connection, 0, owner="fake", address=coreapp.address, heartbeat_timeout=30.0)


@pytest.fixture
async def browser(console: Served) -> AsyncIterator[Browser]:
    """Browser with the session of the administrator."""
    made = Browser.of(console)
    await made.log_in()
    yield made
    await made.http.aclose()


@pytest.fixture
async def unauthenticated_browser(console: Served) -> AsyncIterator[Browser]:
    """Browser without a session."""
    made = Browser.of(console)
    yield made
    await made.http.aclose()
