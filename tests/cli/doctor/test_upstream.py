"""`tidings doctor` asks the Cloud API about each number that sends through it."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator

import pytest

from cli.doctor.findings import Level
from cli.doctor.upstream import UpstreamCheck
from coreapp.upstream import account_check
from tests.cli import graph_server
from tests.cli.graph_server import Graph, P, W
from tests.conftest import DatabaseFactory
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.egress import addresses
from tidings.egress.settings import OutgoingSettings
from tidings.keys import upstream_credentials
from tidings.keys.upstream_credentials import UpstreamCredentials
from tidings.secrets.process_secrets import SecretKeys
from tidings.storage.business import numbers, upstreams
from tidings.storage.business.upstreams import Upstream
from tidings.storage.database import Connection, Database

NUMBER, KEY = "15550000000", b"s" * 32


@pytest.fixture
def database_engine() -> str:
    return "sqlite"


@pytest.fixture
def graph() -> Iterator[Graph]:
    with graph_server.serving() as server:
        yield server


async def attached(database: Database, url: str, *, fault: str = "", key: bytes = KEY) -> UpstreamCheck:
    """Send a number's messages through the Cloud API at this URL. Returns the check."""
    credentials = UpstreamCredentials("T0KEN", "S3CRET", "path", "verify")
    sealed = upstream_credentials.sealed(SecretSealer(key), NUMBER, credentials)

    async def work(connection: Connection) -> None:
        await numbers.add_first(connection, NUMBER)
        number = await numbers.find(connection, NUMBER)
        assert number is not None
        await upstreams.attach(connection, number, Upstream(NUMBER, url, P, W, 80, fault, 1), sealed)

    await database.commit(work)
    return UpstreamCheck(database, OutgoingSettings(addresses.LOOPBACK), SecretKeys.of(KEY))


async def test_without_a_number_on_the_cloud_api_nothing_is_reported(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    check = UpstreamCheck(database, OutgoingSettings(), SecretKeys.of(KEY))
    assert await check.run() == []


async def test_a_working_upstream_is_fine(graph: Graph, database_factory: DatabaseFactory) -> None:
    check = await attached(await database_factory("business"), graph.url)
    (finding,) = await check.run()
    assert (finding.level, finding.remedy) == (Level.FINE, "")


@pytest.mark.parametrize(
    ("path", "status", "body", "level", "remedy"),
    [
        (P, 401, {"error": {"code": 190, "message": "Invalid token"}}, Level.ERROR, "replace the token"),
        (P, 403, {"error": {"code": 10, "message": "Permission"}}, Level.ERROR, "permissions"),
        (P, 200, {"id": P, "status": "BANNED"}, Level.WARNING, "register the number"),
        ("phone_numbers", 200, {"data": []}, Level.ERROR, "compare the ids"),
        ("subscribed_apps", 200, {"data": []}, Level.WARNING, "set the callback"),
    ],
)
async def test_each_problem_has_a_remedy(
    graph: Graph,
    database_factory: DatabaseFactory,
    path: str,
    status: int,
    body: object,
    level: Level,
    remedy: str,
) -> None:
    graph.responses[path] = status, body
    check = await attached(await database_factory("business"), graph.url)
    (finding,) = await check.run()
    assert finding.level is level
    assert remedy in finding.remedy


async def test_a_stopped_number_and_unreadable_credentials_are_errors(
    graph: Graph, database_factory: DatabaseFactory
) -> None:
    database = await database_factory("business")
    (finding,) = await (await attached(database, graph.url, fault="(#190) token")).run()
    assert (finding.level, finding.text) == (Level.ERROR, f"{NUMBER} is stopped: (#190) token")
    (finding,) = await (await attached(database, graph.url, key=b"o" * 32)).run()
    assert finding.level is Level.ERROR
    assert "cannot be opened" in finding.text


async def test_a_clock_that_is_10_minutes_off_is_reported(graph: Graph, database_factory: DatabaseFactory) -> None:
    graph.date = email.utils.formatdate(time.time() + 600, usegmt=True)
    check = await attached(await database_factory("business"), graph.url)
    (finding,) = await check.run()
    assert finding.level is Level.WARNING
    assert "-600 s" in finding.text or "-599 s" in finding.text
    assert account_check.CLOCK_SECONDS == 60.0
