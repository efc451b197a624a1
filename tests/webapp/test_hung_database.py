"""A database that hangs delays no caller by more than 5 s, health reports it, and everything recovers when it
resumes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.mariadb import MariaDB
from tests.webapp.conftest import PASSWORD, Serve, basic, body, code
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.installation.settings import DatabaseSettings
from tidings.storage.database import Database
from webapp import services

RESPONSE_SECONDS = 5.0
TEMPLATE = {"to": "15550110001", "type": "template", "template": {"name": "x", "language": {"code": "en_US"}}}


@pytest.fixture
def database_engine() -> str:
    return "mariadb"


@pytest.fixture
async def database(database_factory: Callable[[str], Awaitable[Database]]) -> AsyncIterator[Database]:
    """Database opened as a Webapp does."""
    url = (await database_factory("business")).settings.url
    seconds = services.DATABASE_SECONDS
    made = Database(DatabaseSettings(url), "business", deadline=seconds, max_retry_seconds=seconds)
    yield made
    await made.close()


@pytest.fixture
def hanging(mariadb: MariaDB) -> Iterator[MariaDB]:
    """Database that the test pauses. It resumes when the test ends."""
    yield mariadb
    mariadb.resume()


async def timed(call: Awaitable[httpx.Response]) -> tuple[httpx.Response, float]:
    loop = asyncio.get_running_loop()
    started = loop.time()
    return await call, loop.time() - started


async def test_every_call_gets_a_response_within_5_seconds_while_the_database_hangs(
    serve: Serve, coreapp: FakeCoreapp, hanging: MariaDB, tmp_path: Path
) -> None:
    api = await serve(media_dir=tmp_path / "media")
    await api.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    http = api.http

    def guesses() -> list[Awaitable[httpx.Response]]:
        # More requests than connections: a request that waits for a connection waits no longer than one that has it.
        return [http.post("/v1/users/login", headers=basic(f"user{n}", "wrong")) for n in range(12)]

    def calls() -> list[Awaitable[httpx.Response]]:
        settings: dict[str, Any] = {"sent_status": True}
        return [
            http.get("/v1/users"),
            http.post("/v1/users", json={"username": "annette", "password": PASSWORD}),
            http.get("/v1/settings/application"),
            http.patch("/v1/settings/application", json=settings),
        ]

    hanging.pause()
    health, *responses = await asyncio.gather(*map(timed, [http.get("/v1/health"), *guesses(), *calls()]))
    assert health[0].json()["health"] == {"gateway_status": "disconnected"}
    # Ten guesses per address are allowed without the database. Only later ones need it.
    assert {code(response) for response, _ in responses} <= {(503, 1011), (503, 1016), (429, 1015)}
    assert {code(response) for response, _ in responses[12:]} <= {(503, 1011), (503, 1016)}
    assert all(response.headers["Retry-After"] for response, _ in responses)
    assert max(seconds for _, seconds in (health, *responses)) < RESPONSE_SECONDS
    # Coreapp calls still work: with a known token no database is needed for a message.
    sent = await asyncio.gather(
        timed(api.send()),
        timed(http.post("/v1/messages", json=body("message_text"), headers={"Idempotency-Key": "fresh"})),
    )
    assert [response.status_code for response, _ in sent] == [201, 201]
    assert max(seconds for _, seconds in sent) < 1.0
    # A message that would be refused may have been accepted before, under the same key.
    for headers in ({}, {"Idempotency-Key": "other"}):
        response = await http.post("/v1/messages", json=TEMPLATE, headers=headers)
        assert code(response) in ((503, 1011), (503, 1016))

    hanging.resume()
    async with asyncio.timeout(RESPONSE_SECONDS):
        while (await http.get("/v1/health")).json()["health"]["gateway_status"] != "connected":
            pass
        again = await asyncio.gather(*calls())
    assert [response.status_code for response in again] == [200, 201, 200, 200]
