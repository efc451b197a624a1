"""`/v1/stats` and `/metrics`: the On-Premises API's names in both formats."""

from __future__ import annotations

import operator
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import Metric, parser
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.applications import Starlette

from tests.manual_clock import ManualClock
from tests.webapp.cluster import two
from tests.webapp.conftest import Serve, Served, body, check_headers, code
from tests.webapp.coreapp_links import noticed
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.roles import ordinary
from tidings.aio.clock import SystemClock
from tidings.http.connection_limiter import ConnectionLimiter
from tidings.http.listener_settings import UnauthenticatedSettings
from tidings.secrets.api_key import ApiKey
from tidings.storage.business import contacts, messages
from tidings.storage.business.contacts import StoredContact
from tidings.storage.business.messages import MessageRow, Status
from tidings.storage.database import Database
from tidings.wire import core
from webapp.api.metrics import exposition
from webapp.api.stats import service
from webapp.http import server

TEXT = (Path(__file__).parents[1] / "data" / "coreapp_metrics.txt").read_text()
APP, DB = "/v1/stats/app", "/v1/stats/db"
KEY = "an API key of the tests"
PROMETHEUS = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"


@pytest.fixture
def api(api: Served, coreapp: FakeCoreapp) -> Served:
    coreapp.respond(core.GetMetrics, lambda q: core.Metrics(q.n, TEXT))
    return api


def families(response: httpx.Response) -> dict[str, Metric]:
    """Parse the text format as strictly as the client library can."""
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    assert response.text.endswith("\n")
    found = {}
    for family in parser.text_string_to_metric_families(response.text):
        assert family.name not in found, "a family stands there twice"
        assert family.type != "unknown", family.name
        assert len({(s.name, *sorted(s.labels.items())) for s in family.samples}) == len(family.samples)
        found[family.name] = family
    return found


def check_json(found: dict[str, Any]) -> None:
    assert found
    for entry in found.values():
        assert set(entry) == {"type", "help", "data"}
        assert entry["type"] in ("gauge", "counter")
        assert entry["help"]
        for sample in entry["data"]:
            assert set(sample) == {"labels", "value"}
            assert isinstance(sample["value"], int | float)


async def test_coreapp_counters_have_the_on_premises_names_in_json(api: Served) -> None:
    for path in (APP, "/v1/stats"):
        response = await api.http.get(path)
        assert response.status_code == 200
        check_headers(response)
        assert set(response.json()) == {"stats", "meta"}
        found = response.json()["stats"]["app"]
        check_json(found)
        assert found["callback_queue_size"] == {
            "type": "gauge",
            "help": "Callbacks that wait for the webhook",
            "data": [{"labels": {}, "value": 7}],
        }
        labels = {"result": "success", "type": "status_change"}
        assert found["callback_requests"]["data"][0] == {"labels": labels, "value": 3}
        assert found["callback_requests_duration_ms_count"]["data"][0] == {"labels": labels, "value": 3}
        assert found["callback_requests_duration_ms_sum"]["data"][0] == {"labels": labels, "value": 12.5}
        assert not any("created" in name for name in found)


async def test_on_premises_counters_have_the_values_of_ours(api: Served) -> None:
    found = (await api.http.get(APP)).json()["stats"]["app"]

    def counted(name: str) -> Any:
        return [(sample["labels"], sample["value"]) for sample in found[name]["data"]]

    assert counted("pending_callbacks") == [({}, 7)]
    assert counted("pending_messages") == [({}, 3)]
    assert counted("concurrent_rate_limit_triggered") == [({}, 5)]
    method = {"method": "AcceptMessage", "result": "ok"}
    assert counted("endpoint_requests") == counted("endpoint_requests_duration_ms_count") == [(method, 9)]
    assert counted("endpoint_requests_duration_ms_sum") == [(method, 18)]
    assert counted("internal_server_requests_duration_ms_count")[0] == ({"operation": "login", "result": "ok"}, 2)
    assert counted("internal_server_conn_duration_ms_count") == [({"result": "ok"}, 2)]
    assert counted("internal_server_conn_duration_ms_sum") == [({"result": "ok"}, 30)]
    assert counted("media_uploads") == [({"type": "image", "result": "stored"}, 4)]
    assert counted("media_downloads")[0] == ({"type": "voice", "result": "stored"}, 3)
    assert [(labels["db"], value) for labels, value in counted("db_request_duration_us_sum")] == [
        ("messageStore", 20_000),
        ("contactStore", 4_000),
        ("axolotlStore", 250_000),
        ("_jobqueue-messages", 8_000),
    ]
    failed = {"db": "messageStore", "request": "commit"}
    assert counted("db_request_error_duration_us_count") == [(failed, 1)]
    assert counted("db_request_error_duration_us_sum") == [(failed, 500_000)]
    assert counted("in_message_from_server") == [({"type": "prekey"}, 6)]
    assert counted("in_message_decoded") == [({"type": "prekey"}, 5)]
    assert counted("in_message_persisted") == [({"type": "text"}, 4)]


@pytest.mark.parametrize("known", body("stats_names"), ids=operator.itemgetter("name"))
async def test_each_on_premises_name_has_its_type_and_labels_in_both_formats(api: Served, known: Any) -> None:
    name, labels = known["name"], set(known["labels"])
    entry = (await api.http.get(APP)).json()["stats"]["app"][name]
    assert entry["type"] == known["type"]
    assert entry["data"]
    assert all(sample["labels"].keys() == labels for sample in entry["data"])
    text = families(await api.http.get(APP, params={"format": "prometheus"}))
    (family,) = [family for family in text.values() if name in _names_in(family)]
    assert family.type == ("summary" if name.endswith(("_count", "_sum")) else known["type"])
    told = [sample for sample in family.samples if sample.name.removesuffix("_total") == name]
    assert told
    assert all(sample.labels.keys() == labels for sample in told)


def _names_in(family: Metric) -> set[str]:
    return {sample.name.removesuffix("_total") for sample in family.samples}


async def test_internal_stats_are_labelled_with_the_node_name(api: Served) -> None:
    for path, under in ((APP, "app"), (DB, "db")):
        plain = (await api.http.get(path)).json()["stats"][under]
        found = (await api.http.get(f"{path}/internal")).json()["stats"][under]
        assert len(found) == 1
        (node,) = found
        assert node
        assert found[node].keys() == plain.keys()
        text = families(await api.http.get(f"{path}/internal", params={"format": "prometheus"}))
        assert all(sample.labels["node"] == node for family in text.values() for sample in family.samples)


async def test_coreapp_counters_are_available_as_prometheus_text(api: Served) -> None:
    found = families(await api.http.get(APP, params={"format": "prometheus"}))
    assert found["callback_queue_size"].samples[0].value == 7
    names = {sample.name for sample in found["callback_requests_duration_ms"].samples}
    assert names == {"callback_requests_duration_ms_count", "callback_requests_duration_ms_sum"}
    assert found["tidings_db_transaction_seconds"].type == "histogram"


@pytest.mark.parametrize("path", [APP, "/v1/stats", DB, "/metrics", "/v1/metrics"])
async def test_the_default_format_is_json(api: Served, path: str) -> None:
    for params, accept, kind in (
        ({}, "*/*", "application/json"),
        ({}, "text/html,application/xhtml+xml,*/*;q=0.8", "application/json"),
        ({}, "application/json, text/plain, */*", "application/json"),
        ({"format": "json"}, PROMETHEUS, "application/json"),
        ({}, PROMETHEUS, "text/plain"),
        ({"format": "prometheus"}, "application/json", "text/plain"),
    ):
        response = await api.http.get(path, params=params, headers={"Accept": accept})
        assert response.status_code == 200
        assert response.headers["Content-Type"].startswith(kind), (params, accept)
    assert code(await api.http.get(path, params={"format": "xml"})) == (400, 1009)


async def test_stats_of_several_coreapps_are_listed_separately(serve: Serve, coreapp: FakeCoreapp) -> None:
    other, cluster = await two(coreapp)
    api = await serve(shard_map=cluster)
    await api.log_in()
    for one in (coreapp, other):
        one.respond(core.GetMetrics, lambda q: core.Metrics(q.n, TEXT))
        await one.until(lambda one=one: one.greetings > 0)  # type: ignore[misc]
    found = (await api.http.get(APP)).json()["stats"]["app"]
    assert set(found) == {"node0", "node1"}
    check_json(found["node1"])
    text = families(await api.http.get(APP, params={"format": "prometheus"}))
    assert {sample.labels["node"] for sample in text["callback_queue_size"].samples} == {"node0", "node1"}
    await other.stop()
    await other.until(lambda: not other.connections)
    assert set((await api.http.get(APP)).json()["stats"]["app"]) <= {"node0", "node1"}


async def test_app_stats_without_a_coreapp_get_503(serve: Serve, coreapp: FakeCoreapp) -> None:
    api = await serve(owner_timeout=0.05)
    await api.log_in()
    await coreapp.stop()
    await noticed()
    assert code(await api.http.get(APP)) == (503, 1011)
    assert (await api.http.get(DB)).status_code == 200


async def fill(database: Database) -> None:
    def message(number: int, kind: str, status: Status) -> MessageRow:
        return MessageRow(f"gBEG{number}", "15550000000", 0, "15550110001", kind, int(status), 1, "")

    async with database.transaction() as connection:
        await contacts.save(
            connection,
            [StoredContact("15550000000", f"1555011000{n}", registered=n < 3, checked_at=1) for n in range(5)],
        )
        await messages.add(
            connection,
            [
                message(1, "text", Status.READ),
                message(2, "text", Status.DELIVERED),
                message(3, "image", Status.SENT),
                message(4, "", Status.ACCEPTED),
                message(5, "null", Status.RECEIVED),
            ],
        )


async def test_database_stats_are_refreshed_periodically(serve: Serve, database: Database) -> None:
    clock = ManualClock()
    api = await serve(clock=clock)
    await api.log_in()
    empty = (await api.http.get(DB)).json()["stats"]["db"]
    check_json({name: entry for name, entry in empty.items() if entry["data"]})
    await fill(database)
    assert (await api.http.get(DB)).json()["stats"]["db"] == empty
    clock.advance(service.CACHED_SECONDS + 1)
    found = (await api.http.get(DB)).json()["stats"]["db"]
    check_json(found)
    assert [(s["labels"]["type"], s["value"]) for s in found["db_contacts"]["data"]] == [
        ("whatsapp_user", 3),
        ("non_whatsapp_user", 2),
    ]
    assert [(s["labels"]["type"], s["value"]) for s in found["db_messages"]["data"]] == [
        ("undefined", 1),
        ("image", 1),
        ("text", 2),
    ]
    assert found["db_message_receipts"]["data"] == [{"labels": {}, "value": 2}]
    families(await api.http.get(DB, params={"format": "prometheus"}))


async def test_metrics_count_calls_by_endpoint_and_status(served_api: Served) -> None:
    api = served_api
    assert (await api.send()).status_code == 201
    assert (await api.http.get("/v1/users/nobody")).status_code == 404
    found = (await api.http.get("/metrics")).json()["metrics"]
    check_json({name: entry for name, entry in found.items() if entry["data"] and entry["help"]})
    calls = {
        (sample["labels"]["method"], sample["labels"]["result"])
        for sample in found["api_requests_duration_ms_count"]["data"]
    }
    assert {("POST_v1_messages", "201"), ("GET_v1_users_username", "404")} <= calls
    for name in (
        *("web_uptime", "web_connections", "web_pending_connections", "web_max_pending_connections", "web_queue_len"),
        *("web_idle_processes", "web_requests"),
    ):
        assert all(sample["labels"]["node"] for sample in found[name]["data"])
    text = families(await api.http.get("/metrics", params={"format": "prometheus"}))
    assert text["api_requests_duration_ms"].type == "summary"
    assert [sample.labels["state"] for sample in text["web_requests"].samples] == ["handle-request", "read"]


async def test_connections_waiting_to_be_accepted_are_counted() -> None:
    listener = server.listen("127.0.0.1", 0)
    limiter = ConnectionLimiter(UnauthenticatedSettings(), SystemClock(), connections=10)
    http = server.HTTPServer(Starlette(), [listener], lambda: None, limiter=limiter)
    waiting = [socket.create_connection(listener.getsockname()) for _ in range(3)]
    assert http.load() == server.ServerLoad(0, 0, 3)
    for client in waiting:
        client.close()
    listener.close()


async def test_stats_accept_a_token_or_the_api_key(serve: Serve, coreapp: FakeCoreapp) -> None:
    api = await serve(api_key=ApiKey(KEY))
    await api.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    own = await ordinary(api)
    for path in (APP, "/v1/stats", DB):
        for header in ({"Authorization": f"Apikey {KEY}"}, own):
            assert (await api.http.get(path, headers=header)).status_code == 200
        for wrong in ("", "Apikey x", "Bearer x"):
            assert code(await api.http.get(path, headers={"Authorization": wrong})) == (401, 1005)


def test_json_omits_nan_and_infinity() -> None:
    gauge = GaugeMetricFamily("g", "help", labels=["a"])
    gauge.add_metric(["nan"], float("nan"))
    gauge.add_metric(["inf"], float("inf"))
    gauge.add_metric(["half"], 0.5)
    counter = CounterMetricFamily("c", "help", value=3)
    assert exposition.as_json([gauge, counter]) == {
        "g": {"type": "gauge", "help": "help", "data": [{"labels": {"a": "half"}, "value": 0.5}]},
        "c": {"type": "counter", "help": "help", "data": [{"labels": {}, "value": 3}]},
    }
