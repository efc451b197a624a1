"""A change made through one process takes effect in all others within a second."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from coreapp.config import ConfigSource
from coreapp.webhook_secrets import WebhookSecrets
from harness import lateness, polling
from tests.coreapp.sink import SECRET
from tests.webapp.conftest import Serve, Served
from tidings.aio.clock import SystemClock
from tidings.changes.watch import Watch
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.storage.business import certificates, changes, templates
from tidings.storage.business.templates import TemplateRow
from tidings.storage.database import Database

ACCOUNT = "15550000000"
TEMPLATE = TemplateRow(ACCOUNT, "plain", "en_US", "ns", "UTILITY", "APPROVED", [{"type": "BODY", "text": "hello"}], 5)


@contextlib.asynccontextmanager
async def running(*watches: Watch) -> AsyncIterator[None]:
    stop = asyncio.Event()
    tasks = [asyncio.create_task(watch.run(stop)) for watch in watches]
    yield
    stop.set()
    await asyncio.gather(*tasks)


async def holds_within_a_second(holds: Callable[[], Awaitable[bool]]) -> bool:
    started = time.monotonic()
    async with lateness.measured() as late:
        await polling.until(holds, pause=0.02)
    return time.monotonic() - started < 1.0 + late.seconds


async def test_two_webapps_and_a_coreapp_apply_a_change_within_one_poll(
    api: Served, serve: Serve, database: Database
) -> None:
    other = await serve()
    await other.log_in()
    safe = SecretSealer(b"s" * 32)
    config = ConfigSource(
        database, ACCOUNT, safe=safe, secrets=WebhookSecrets(ACCOUNT, SECRET, safe), clock=SystemClock()
    )
    of_coreapp = Watch(database)
    of_coreapp.on(changes.SETTINGS, config.load)
    of_coreapp.on(changes.CERTIFICATES, config.load)
    shard = await config.open()
    async with running(of_coreapp, other.parts.common.changes):
        await asyncio.sleep(0)

        async def heartbeat_is_new() -> bool:
            return shard.settings.heartbeat_interval == 7

        # The scripted Coreapp of the link is notified; this one has only the database.
        await api.http.patch("/v1/settings/application", json={"heartbeat_interval": 7})
        assert await holds_within_a_second(heartbeat_is_new)

        async with database.transaction() as connection:
            await certificates.set_certificate(connection, ACCOUNT, certificates.WEBHOOK_CA, b"new authorities")

        async def authorities_are_new() -> bool:
            return shard.authorities == b"new authorities"

        assert await holds_within_a_second(authorities_are_new)

        async with database.transaction() as connection:
            assert await templates.add_template(connection, TEMPLATE)
        assert (await other.parts.resources.templates.find("15550000000", "plain", "en_US", None))[0], (
            "what is not known is looked up"
        )
        assert (await api.http.delete("/v1/configs/templates/plain")).status_code == 200

        async def template_is_gone() -> bool:
            return not (await other.parts.resources.templates.find("15550000000", "plain", "en_US", None))[0]

        assert await holds_within_a_second(template_is_gone)

        ended = api.http.headers["Authorization"]
        assert (await other.http.get("/v1/users/admin", headers={"Authorization": ended})).status_code == 200
        await api.http.post("/v1/users/logout")

        async def token_is_ended() -> bool:
            response = await other.http.get("/v1/users/admin", headers={"Authorization": ended})
            return response.status_code == 401

        assert await holds_within_a_second(token_is_ended)


@pytest.mark.parametrize("database_engine", ["sqlite", "mariadb"])
async def test_a_failed_reload_is_repeated_at_the_next_poll_and_blocks_no_other(
    database: Database, database_engine: str
) -> None:
    watch = Watch(database)
    read: list[str] = []
    broken = True

    async def fail() -> None:
        if broken:
            raise ConnectionError("away")
        read.append("settings")

    async def fine() -> None:
        read.append("templates")

    watch.on(changes.SETTINGS, fail)
    watch.on(changes.TEMPLATES, fine)
    with pytest.raises(ConnectionError):
        await watch.run_once()
    assert read == ["templates"], "everything is read at the first look"
    broken = False
    await watch.run_once()
    await watch.run_once()
    assert read == ["templates", "settings"]
    for _ in range(2):
        async with database.transaction() as connection:
            await changes.note(connection, changes.TEMPLATES)
    await watch.run_once()
    assert read == ["templates", "settings", "templates"]
