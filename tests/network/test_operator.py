"""Metrics and status pages of the network, and who may read them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from harness.mariadb import free_port
from network import app
from network.delay import Delay
from tests.conftest import DatabaseFactory
from tests.network.support import ALICE, Network, stored
from tidings.secrets.api_key import NO_KEY, ApiKey
from tidings.storage import outages
from tidings.storage.database import Connection, Database
from tidings.storage.network import mailbox

KEY = ApiKey("an API key of the tests")
OPERATOR_KEY = ApiKey("the key of the operator")


class Quiet:
    """Doubles for the parts of an idle network."""

    online = undecided = 0

    def __len__(self) -> int:
        return 0


def client(database: Database, key: ApiKey, *, is_local: bool) -> httpx.AsyncClient:
    quiet = Quiet()
    routes = app.operator_routes(quiet, quiet, database, api_key=key, is_local=is_local)  # type: ignore[arg-type]
    made = app.create([routes], Delay(0, 0), is_local=is_local)
    return httpx.AsyncClient(transport=httpx.ASGITransport(made), base_url="http://network")


@pytest.mark.parametrize("pair", [("tcp", "sqlite")])
async def test_metrics_on_a_public_address_require_the_api_key(
    database_factory: DatabaseFactory, pair: tuple[str, str]
) -> None:
    database = await database_factory("network")
    async with client(database, KEY, is_local=False) as http:
        assert (await http.get("/health")).status_code == 200
        for wrong in ({}, {"Authorization": "Apikey wrong"}, {"Authorization": f"Bearer {KEY}"}):
            assert (await http.get("/metrics", headers=wrong)).status_code == 401
        assert (await http.get("/metrics", headers={"Authorization": f"Apikey {KEY}"})).status_code == 200
        for path in ("/docs", "/redoc", "/openapi.json"):
            assert (await http.get(path)).status_code == 404
    async with client(database, NO_KEY, is_local=False) as http:
        for given in ({}, {"Authorization": "Apikey "}):
            assert (await http.get("/metrics", headers=given)).status_code == 401
    async with client(database, NO_KEY, is_local=True) as http:
        assert (await http.get("/metrics")).status_code == 200


@pytest.mark.parametrize("pair", [("tcp", "sqlite")])
async def test_the_monitoring_key_cannot_send_announcements(network: Network) -> None:
    await network.start(api_key=KEY, operator_key=OPERATOR_KEY)
    for path in ("/v1/announcements", "/v1/announcements/15550100001"):
        for key, status in ((KEY, 401), (OPERATOR_KEY, 202 if path.endswith("s") else 404)):
            headers = {"Authorization": f"Apikey {key}"}
            async with network.http.post(path, json={"text": "To all"}, headers=headers) as response:
                assert response.status == status


@pytest.mark.one_node
@pytest.mark.parametrize("pair", [("tcp", "sqlite")])
async def test_a_separate_metrics_listener_uses_tls_and_is_the_only_one(network: Network) -> None:
    port = free_port()
    await network.start(api_key=KEY, metrics_address=("0.0.0.0", port))
    headers = {"Authorization": f"Apikey {KEY}"}
    async with network.http.get("/metrics", headers=headers) as response:
        assert response.status == 404
    async with httpx.AsyncClient(verify=False, base_url=f"https://127.0.0.1:{port}") as http:
        assert (await http.get("/metrics")).status_code == 401
        assert (await http.get("/metrics", headers=headers)).status_code == 200
        assert (await http.get("/health/ready")).json() == {"status": "ready", "database": "ok", "node": "ok"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        with pytest.raises(httpx.HTTPError):
            await http.get("/metrics", headers=headers)


@pytest.mark.parametrize("pair", [("tcp", "sqlite")])
async def test_announcements_require_an_operator_key(network: Network) -> None:
    await network.start(api_key=KEY)
    for key in (KEY, ""):
        headers = {"Authorization": f"Apikey {key}"}
        async with network.http.post("/v1/announcements", json={"text": "To all"}, headers=headers) as response:
            assert response.status == 401


@pytest.mark.parametrize("pair", [("tcp", "sqlite")])
async def test_an_announcement_whose_commit_lost_its_response_arrives_once(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    await network.start(operator_key=OPERATOR_KEY)
    await network.register(ALICE)
    alice = await network.connect(ALICE)
    begin, insert = Database.transaction, mailbox.insert
    inserted: list[mailbox.Envelope] = []
    lost: list[str] = []

    async def noted(connection: Connection, rows: Sequence[mailbox.Envelope]) -> None:
        inserted.extend(rows)
        await insert(connection, rows)

    @contextlib.asynccontextmanager
    async def transaction(database: Database, **options: Any) -> AsyncIterator[Connection]:
        async with begin(database, **options) as connection:
            yield connection
        if inserted and not lost:
            lost.append(inserted[0].id)
            raise outages.DatabaseTimeout("no answer")

    monkeypatch.setattr(mailbox, "insert", noted)
    monkeypatch.setattr(Database, "transaction", transaction)
    headers = {"Authorization": f"Apikey {OPERATOR_KEY}"}
    async with network.http.post(f"/v1/announcements/{ALICE}", json={"text": "hello"}, headers=headers) as response:
        assert response.status == 202
    assert lost
    (delivery,) = await alice.deliveries(1)
    assert delivery.body == b"hello"
    assert await stored(network) == [delivery.id]
