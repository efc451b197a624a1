"""`GET /v1/health` and `/metrics`: their content is true, and who may read it."""

from __future__ import annotations

import asyncio
import functools
import re

import msgspec
import pytest
from fastapi.routing import APIRoute
from prometheus_client.parser import text_string_to_metric_families

from tests.coreapp.signals import soon
from tests.manual_clock import ManualClock
from tests.webapp.cloud.conftest import APP, NUMBER, WABA
from tests.webapp.conftest import Serve, Served, check_headers, code
from tests.webapp.coreapp_links import ScriptedMap, noticed, owner
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.secrets.api_key import ApiKey
from tidings.secrets.first_password import FirstPassword
from tidings.storage.business import layouts
from tidings.storage.database import Connection, Database
from tidings.wire import core
from tidings.wire.cloud.identity import ObjectKind
from webapp.api.cloud.endpoints import ENDPOINTS
from webapp.api.health import service

KEY = "an API key of the tests"


@pytest.mark.parametrize("status", ["connected", "connecting", "uninitialized", "unregistered"])
async def test_health_returns_the_status_of_the_coreapp(api: Served, coreapp: FakeCoreapp, status: str) -> None:
    coreapp.respond(core.GetHealth, lambda q: core.Health(n=q.n, gateway_status=status))
    response = await api.http.get("/v1/health")
    assert response.status_code == 200
    assert response.json() == {
        "health": {"gateway_status": status},
        "meta": {"version": "2.57.2", "api_status": "stable"},
    }
    check_headers(response)


async def test_health_reports_the_number_of_dropped_statuses(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.respond(core.GetHealth, lambda q: core.Health(n=q.n, gateway_status="connected", statuses_dropped=12))
    response = await api.http.get("/v1/health")
    assert response.json()["health"] == {"gateway_status": "connected", "statuses_dropped": 12}


async def test_slow_health_checks_return_the_recent_result_and_share_one_call(
    api: Served, coreapp: FakeCoreapp, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await api.http.get("/v1/health")).json()["health"] == {"gateway_status": "connected"}
    coreapp.respond(core.GetHealth, lambda q: None)
    for _ in range(2):
        assert (await api.http.get("/v1/health")).json()["health"] == {"gateway_status": "connected"}
    [request] = coreapp.requested(core.GetHealth)[1:]
    coreapp.respond(core.GetHealth, lambda q: core.Health(n=q.n, gateway_status="connecting"))
    monkeypatch.setattr(service, "_RECENT", -1.0)
    call = asyncio.create_task(api.http.get("/v1/health"))
    for connection in coreapp.connections:
        connection.send(core.Health(n=request.n, gateway_status="connecting"))
    assert (await call).json()["health"] == {"gateway_status": "connecting"}


async def test_health_reports_the_progress_of_a_layout_change(
    api: Served, coreapp: FakeCoreapp, database: Database, no_earlier_health: None
) -> None:
    async def change(connection: Connection) -> None:
        await layouts.create(connection, 1)
        await layouts.request(connection, 4)
        await layouts.note_moved(connection, 1234)

    await database.persist(change)
    response = await api.http.get("/v1/health")
    change_of = {"shards": 4, "active_shards": 1, "moved": 1234}
    assert response.json()["health"] == {"gateway_status": "connected", **change_of}
    await database.persist(functools.partial(layouts.replace, before=await database.query(layouts.find)))
    assert (await api.http.get("/v1/health")).json()["health"] == {"gateway_status": "connected"}


async def test_health_without_a_coreapp_is_disconnected_at_once(api: Served, coreapp: FakeCoreapp) -> None:
    await coreapp.stop()
    response = await api.http.get("/v1/health", timeout=2)
    assert (response.status_code, response.json()["health"]) == (200, {"gateway_status": "disconnected"})


async def test_the_root_path_serves_a_load_balancer_without_a_token(api: Served) -> None:
    del api.http.headers["Authorization"]
    response = await api.http.get("/")
    assert (response.status_code, set(response.json())) == (200, {"meta"})
    response = await api.http.head("/")
    assert (response.status_code, response.content) == (200, b"")


# As in the On-Premises API, the key also reads statistics.
MONITORED = {
    *("/v1/health", "/metrics", "/v1/metrics"),
    *("/v1/stats", "/v1/stats/app", "/v1/stats/db", "/v1/stats/app/internal", "/v1/stats/db/internal"),
}
# The path has its own secret.
CALLBACKS = "/cloud/callbacks/{secret}"
PUBLIC = {"/", "/health/live", "/health/ready", "/openapi.json", "/docs", "/docs/{name}"}


async def test_the_api_key_is_accepted_only_to_read_health_metrics_and_statistics(serve: Serve) -> None:
    api = await serve(api_key=ApiKey(KEY))
    headers = {"Authorization": f"Apikey {KEY}"}
    for path in MONITORED:
        assert (await api.http.get(path, headers=headers)).status_code == 200, path
        for wrong in ({"Authorization": f"Apikey {KEY[:-1]}"}, {"Authorization": "Apikey"}, {}):
            assert code(await api.http.get(path, headers=wrong)) == (401, 1005), path
    routes = [route for route in api.parts.app.router.routes if isinstance(route, APIRoute)]
    others = {(method, route.path) for route in routes for method in set(route.methods or ()) - {"HEAD"}}
    others -= {("GET", path) for path in MONITORED | PUBLIC} | {("GET", CALLBACKS), ("POST", CALLBACKS)}
    assert len(others) > 70
    for method, path in others:
        filled = re.sub(r"\{[a-z_]+\}", "1", path)
        assert code(await api.http.request(method, filled, headers=headers)) == (401, 1005), (method, path)


async def test_the_api_key_opens_nothing_of_the_cloud_api(serve: Serve) -> None:
    api = await serve(api_key=ApiKey(KEY), cloud_api=True)
    nodes: dict[str, str] = {ObjectKind.NUMBER: NUMBER, ObjectKind.WABA: WABA, ObjectKind.APP: APP}
    for kind, edge, method in ENDPOINTS:
        path = f"/v25.0/{nodes.get(kind, kind)}/{edge}"
        response = await api.http.request(method, path, headers={"Authorization": f"Apikey {KEY}"})
        assert response.status_code in (401, 404), (method, path)
        assert response.json()["error"]["code"] in (100, 104, 190, 2500), (method, path)


async def test_without_a_configured_api_key_every_key_is_refused(api: Served) -> None:
    for header in ("Apikey", "Apikey x"):
        assert code(await api.http.get("/v1/health", headers={"Authorization": header})) == (401, 1005)


async def test_metrics_are_public_without_an_api_key_and_accept_a_token_with_one(api: Served, serve: Serve) -> None:
    token = api.http.headers.pop("Authorization")
    assert (await api.http.get("/metrics")).status_code == 200
    keyed = await serve(api_key=ApiKey(KEY))
    assert (await keyed.http.get("/metrics", headers={"Authorization": token})).status_code == 200


async def test_metrics_are_prometheus_text_with_the_counted_requests(serve: Serve) -> None:
    api = await serve(messages_rate=0.001, messages_burst=1)
    await api.log_in()
    before = await values(api)
    assert (await api.send()).status_code == 201
    assert (await api.send()).status_code == 429
    await api.http.get("/no/such/path")
    await api.log_in()
    after = await values(api)
    sent = 'http_request_duration_seconds_count{"handler": "/v1/messages", "method": "POST", "status": "%s"}'
    assert after[sent % "2xx"] - before.get(sent % "2xx", 0) == 1
    assert after[sent % "4xx"] - before.get(sent % "4xx", 0) == 1
    limited = 'tidings_api_rate_limited_total{"endpoint": "messages"}'
    assert after[limited] - before[limited] == 1
    logins = 'tidings_logins_total{"result": "ok"}'
    assert after[logins] - before[logins] == 1
    assert after["tidings_webapp_coreapps_connected{}"] >= 1
    assert not any("/no/such/path" in name for name in after)


async def values(api: Served) -> dict[str, float]:
    response = await api.http.get("/metrics", params={"format": "prometheus"})
    assert response.headers["Content-Type"].startswith("text/plain")
    return {
        f"{sample.name}{{{', '.join(f'{_quote(k)}: {_quote(v)}' for k, v in sorted(sample.labels.items()))}}}": (
            sample.value
        )
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def _quote(text: str) -> str:
    return f'"{text}"'


@pytest.mark.parametrize(
    ("path", "status"), [("/metrics", 200), ("/v1/metrics", 200), ("/openapi.json", 401), ("/docs", 401)]
)
async def test_beyond_loopback_metrics_need_a_token_or_key_and_documents_a_token(
    serve: Serve, coreapp: FakeCoreapp, path: str, status: int
) -> None:
    api = await serve(api_key=ApiKey(KEY), address=("0.0.0.0", 0))
    assert code(await api.http.get(path)) == (401, 1005)
    assert code(await api.http.get(path, headers={"Authorization": "Apikey " + KEY[::-1]})) == (401, 1005)
    assert (await api.http.get(path, headers={"Authorization": f"Apikey {KEY}"})).status_code == status
    await api.log_in()
    assert (await api.http.get(path)).status_code == 200


@pytest.mark.parametrize("path", ["/metrics", "/openapi.json", "/docs"])
async def test_on_loopback_metrics_and_documents_are_public(serve: Serve, path: str) -> None:
    api = await serve()
    assert (await api.http.get(path)).status_code == 200


async def test_beyond_loopback_without_a_key_metrics_need_a_token(serve: Serve) -> None:
    api = await serve(address=("0.0.0.0", 0))
    assert code(await api.http.get("/metrics")) == (401, 1005)


async def linked(serve: Serve, coreapp: FakeCoreapp, clock: ManualClock) -> Served:
    """Webapp whose Coreapp accepts calls."""
    api = await serve(clock=clock)
    await coreapp.until(lambda: coreapp.greetings > 0)
    await soon(lambda: all(peer.is_ready for peer in api.parts.links.connections._peers.values()))
    return api


async def test_liveness_and_readiness_need_no_token(serve: Serve, coreapp: FakeCoreapp) -> None:
    clock = ManualClock()
    api = await linked(serve, coreapp, clock)
    assert (await api.http.get("/health/live")).json()["health"] == {"status": "live"}

    async def ready() -> tuple[int, dict[str, str]]:
        clock.advance(2)
        response = await api.http.get("/health/ready")
        return response.status_code, response.json()["health"]

    fine = {"database": "ok", "coreapps": "ok", "network": "ok", "media": "ok"}
    assert await ready() == (200, {"status": "ready", **fine})
    for health, what in (
        (core.Health(0, "connecting"), "network"),
        (core.Health(0, "disconnected", shards=[0], away=["database"]), "database"),
        (core.Health(0, "disconnected", shards=[0], away=["network"]), "network"),
        # The Coreapp has just lost its shard, or not opened it yet: databases and network may be healthy.
        (core.Health(0, "disconnected"), "coreapps"),
        # A release that does not report the reason.
        (core.Health(0, "disconnected", shards=[0]), "database"),
    ):
        coreapp.respond(core.GetHealth, lambda q, health=health: msgspec.structs.replace(health, n=q.n))  # type: ignore[misc]
        assert await ready() == (503, {"status": "not ready", **fine, what: "away"})
    # The Coreapp waits for its number, which is registered through the API.
    coreapp.respond(core.GetHealth, lambda q: core.Health(q.n, "unregistered"))
    assert (await ready())[0] == 200
    await coreapp.stop()
    await noticed()
    assert await ready() == (503, {"status": "not ready", **fine, "coreapps": "away"})
    assert (await api.http.get("/health/live")).status_code == 200


async def test_a_webapp_is_not_ready_while_the_only_coreapp_lacks_a_shard(serve: Serve, coreapp: FakeCoreapp) -> None:
    coreapp.respond(core.GetHealth, lambda q: core.Health(q.n, "connected", shards=[0]))
    shard_map = ScriptedMap(owner(coreapp), owner(None, 1))
    api = await serve(shard_map=shard_map)
    await coreapp.until(lambda: coreapp.greetings > 0)
    await soon(lambda: all(peer.is_ready for peer in api.parts.links.connections._peers.values()))
    response = await api.http.get("/health/ready")
    assert (response.status_code, response.json()["health"]["coreapps"]) == (503, "away")
    await api.log_in()
    assert (await api.http.get("/v1/health")).json()["health"] == {"gateway_status": "connected"}, "one object"


async def test_a_webapp_without_its_database_is_not_ready(
    api: Served, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> bool:
        return False

    monkeypatch.setattr(database, "is_alive", away)
    response = await api.http.get("/health/ready")
    assert (response.status_code, response.json()["health"]["database"]) == (503, "away")


async def test_a_health_check_timeout_gets_500_and_is_not_repeated(
    api: Served, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    async def late() -> bool:
        looks.append("late")
        raise TimeoutError

    monkeypatch.setattr(database, "is_alive", late)
    response = await api.http.get("/v1/health", timeout=5)
    assert (response.status_code, looks) == (500, ["late"])


async def test_readiness_is_checked_at_most_once_per_second(serve: Serve, coreapp: FakeCoreapp) -> None:
    clock = ManualClock()
    api = await linked(serve, coreapp, clock)
    for _ in range(2):
        await asyncio.gather(*(api.http.get("/health/ready") for _ in range(20)))
    assert len(coreapp.requested(core.GetHealth)) == 1
    clock.advance(1.5)
    await api.http.get("/health/ready")
    assert len(coreapp.requested(core.GetHealth)) == 2


async def test_before_the_first_password_change_only_the_health_probes_are_served(serve: Serve) -> None:
    api = await serve(address=("0.0.0.0", 0), first_password=FirstPassword("", False))
    assert (await api.http.get("/health/live")).status_code == 200
    assert (await api.http.get("/health/ready")).status_code in (200, 503)
    assert code(await api.http.get("/v1/health")) == (403, 1024)


async def test_health_reports_a_number_registered_elsewhere_as_unregistered(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.respond(core.GetHealth, lambda q: core.Health(n=q.n, gateway_status="unregistered", elsewhere=True))
    response = await api.http.get("/v1/health")
    assert response.json()["health"] == {"gateway_status": "unregistered", "registered_elsewhere": True}
