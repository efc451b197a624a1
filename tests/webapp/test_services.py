"""`/v1/services`, `/v1/support`, and `/v1/health` with several Coreapps."""

from __future__ import annotations

import pytest

from tests.coreapp.signals import soon
from tests.webapp.cluster import NOBODY, Cluster, two
from tests.webapp.conftest import Serve, Served, check_headers, code
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.roles import check_is_for_administrators, check_takes_a_token, ordinary
from tidings.storage.business import accounts, layouts, registrations
from tidings.storage.business.accounts import Account
from tidings.storage.business.nodes import CoreappNode, NodeRecord
from tidings.storage.database import Database
from tidings.wire import core

META = {"version": "2.57.2", "api_status": "stable"}
GC = {"message": "/v1/services/message/gc", "media": "/v1/services/media/gc"}
SUPPORT = "/v1/support"


@pytest.mark.parametrize("kind", ["message", "media"])
async def test_a_garbage_collection_request_starts_one(api: Served, coreapp: FakeCoreapp, kind: str) -> None:
    response = await api.http.put(GC[kind])
    assert response.status_code == 200
    assert response.json() == {"services": {kind: {"gc": {"status": "processing"}}}, "meta": META}
    check_headers(response)
    assert [request.kind for request in coreapp.requested(core.CollectGarbage)] == [kind]


async def test_several_coreapps_each_report_their_garbage_collection(serve: Serve, coreapp: FakeCoreapp) -> None:
    other, cluster = await two(coreapp)
    api = await serve(shard_map=cluster)
    await api.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    await other.until(lambda: other.greetings > 0)
    both = {"node0": {"status": "processing"}, "node1": {"status": "processing"}}
    assert (await api.http.put(GC["message"])).json()["services"] == {"message": {"gc": both}}
    other.refuse(core.CollectGarbage, 1011, "not now")
    response = await api.http.put(GC["media"])
    assert response.json()["services"]["media"]["gc"]["node1"] == {"status": "failed"}
    await other.stop()


async def test_a_kind_that_the_coreapp_does_not_collect_gets_503(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.CollectGarbage, 1011, "media is not collected here")
    assert code(await api.http.put(GC["media"])) == (503, 1011)


@pytest.mark.parametrize("kind", ["message", "media"])
async def test_garbage_collection_requires_an_administrator(api: Served, kind: str) -> None:
    await check_is_for_administrators(api, "PUT", GC[kind])


async def test_support_returns_account_and_registration_data(api: Served, database: Database) -> None:
    async with database.transaction() as connection:
        await accounts.add_account(connection, Account("15550000000", 77, b"a", b"b", b"c"))
        await registrations.note_registered(connection, "15550000000", 1_700_000_000_123)
    response = await api.http.get(SUPPORT, headers=await ordinary(api))
    assert response.status_code == 200
    check_headers(response)
    found = response.json()["support"]
    assert found["debug_info"] == "15550000000"
    assert found["e2e"] == {"identity_timestamp": 1_700_000_000, "registration_id": 77}
    assert found["db_engine"] == "SQLITE"
    assert found["socket_conn"] == "UP"
    assert found["multi_connect"] is False
    assert found["free_space_data"] > 0
    stores = {"axolotl", "callback", "cluster", "config", "contact", "jobqueue", "message"}
    assert set(found["schema"]) == stores
    assert min(found["schema"].values()) >= 4


@pytest.mark.parametrize(("status", "expected"), [("connected", "UP"), ("connecting", "DN")])
async def test_support_returns_the_connection_state(
    api: Served, coreapp: FakeCoreapp, status: str, expected: str
) -> None:
    coreapp.respond(core.GetHealth, lambda q: core.Health(n=q.n, gateway_status=status))
    assert (await api.http.get(SUPPORT)).json()["support"]["socket_conn"] == expected
    await coreapp.stop()
    assert (await api.http.get(SUPPORT)).json()["support"]["socket_conn"] == "UNK"


async def test_support_requires_a_token(api: Served) -> None:
    await check_takes_a_token(api, "GET", SUPPORT)


async def test_health_and_support_list_each_of_several_coreapps(
    serve: Serve, coreapp: FakeCoreapp, database: Database, no_earlier_health: None
) -> None:
    other, _ = await two(coreapp)
    api = await serve(shard_map=Cluster(coreapp.address, other.address, NOBODY))
    await api.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    await other.until(lambda: other.greetings > 0)
    other.respond(core.GetHealth, lambda q: core.Health(q.n, "connecting", "x", [1], 7))
    assert (await api.http.get("/v1/health")).json()["health"] == {
        "node0": {"gateway_status": "connected", "role": "primary_master"},
        "node1": {"gateway_status": "connecting", "statuses_dropped": 7, "role": "secondary_master"},
        "node2": {"gateway_status": "disconnected", "role": "secondary_master"},
    }
    await database.persist(lambda connection: layouts.create(connection, 4))
    await database.persist(lambda connection: layouts.request(connection, 8))
    nodes = (await api.http.get("/v1/health")).json()["health"]
    assert {name: (node["shards"], node["moved"]) for name, node in nodes.items()} == {
        f"node{number}": (8, 0) for number in range(3)
    }
    found = (await api.http.get(SUPPORT)).json()["support"]
    assert {name: (node["socket_conn"], node["shards"]) for name, node in found.items()} == {
        "node0": ("UP", [[0, 0]]),
        "node1": ("DN", [[1, 1]]),
        "node2": ("UNK", []),
    }
    await other.stop()


def member(name: str, address: str, heartbeat_age: float = 0.0) -> NodeRecord:
    return NodeRecord(CoreappNode(name, "1", address, 5.0), 0, 0, heartbeat_age)


async def test_health_lists_standbys_and_lost_coreapps(serve: Serve, coreapp: FakeCoreapp) -> None:
    spare = await FakeCoreapp().start()
    spare.respond(core.GetHealth, lambda q: core.Health(q.n, "disconnected", "spare"))
    members = [
        member("node0", coreapp.address),
        member("spare", spare.address),
        member("lost", "10.0.0.9:6252", heartbeat_age=42.0),
        member("before a restart", coreapp.address, heartbeat_age=60.0),
        member("long forgotten", "10.0.0.8:6252", heartbeat_age=4000.0),
    ]
    api = await serve(shard_map=Cluster(coreapp.address, members=members))
    await api.log_in()
    await spare.until(lambda: spare.greetings > 0)
    assert (await api.http.get("/v1/health")).json()["health"] == {
        "node0": {"gateway_status": "connected", "role": "primary_master"},
        "spare": {"gateway_status": "disconnected", "role": "coreapp"},
        "lost": {"gateway_status": "disconnected", "role": "coreapp", "silent_for_s": 42},
    }
    await spare.stop()


async def test_a_lost_owner_has_no_master_role(serve: Serve, coreapp: FakeCoreapp) -> None:
    """Its shards are in its name until another Coreapp takes them."""
    members = [member("node0", coreapp.address), member("node1", NOBODY, heartbeat_age=20.0)]
    api = await serve(shard_map=Cluster(coreapp.address, NOBODY, members=members))
    await api.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    assert (await api.http.get("/v1/health")).json()["health"] == {
        "node0": {"gateway_status": "connected", "role": "primary_master"},
        "node1": {"gateway_status": "disconnected", "role": "coreapp", "silent_for_s": 20},
    }
    assert (await api.http.get(SUPPORT)).json()["support"]["node1"]["role"] == "coreapp"


async def test_health_reports_how_long_a_live_coreapp_was_unreached(serve: Serve, coreapp: FakeCoreapp) -> None:
    members = [member("node0", coreapp.address), member("spare", NOBODY)]
    api = await serve(shard_map=Cluster(coreapp.address, members=members))
    await api.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    links = api.parts.links
    await soon(lambda: links.unreached().keys() == {NOBODY} and links.unreached()[NOBODY] >= 1)
    health = (await api.http.get("/v1/health")).json()["health"]
    assert health["node0"] == {"gateway_status": "connected", "role": "primary_master"}
    seconds = health["spare"].pop("unreached_for_s")
    assert 1 <= seconds <= links.unreached()[NOBODY] + 1
    assert health["spare"] == {"gateway_status": "disconnected", "role": "coreapp"}


async def test_health_with_one_coreapp_keeps_the_single_form_before_it_owns_a_shard(
    serve: Serve, coreapp: FakeCoreapp
) -> None:
    coreapp.respond(core.GetHealth, lambda q: core.Health(q.n, "disconnected", "node0"))
    api = await serve(shard_map=Cluster("", members=[member("node0", coreapp.address)]))
    await api.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    assert (await api.http.get("/v1/health")).json()["health"] == {"gateway_status": "disconnected"}


async def test_several_shards_of_one_coreapp_are_shown_as_one(serve: Serve, coreapp: FakeCoreapp) -> None:
    api = await serve(shard_map=Cluster(coreapp.address, coreapp.address))
    await api.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    assert (await api.http.get("/v1/health")).json()["health"] == {"gateway_status": "connected"}
