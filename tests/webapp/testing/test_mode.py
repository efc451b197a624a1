"""Calls below `/tidings/`: tokens, hosts, validation, faults, and their absence outside test mode."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.webapp.cloud.conftest import NUMBER
from tests.webapp.cloud.conftest import error as graph_error
from tests.webapp.conftest import Serve, Served, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.wire import core

CALLS = (
    ("POST", "/tidings/recipients/15550110000/messages"),
    ("GET", "/tidings/recipients/15550110000/shown"),
    ("POST", "/tidings/reset"),
    ("GET", "/tidings/faults"),
    ("POST", "/tidings/faults"),
    ("DELETE", "/tidings/faults"),
    ("DELETE", "/tidings/faults/1"),
    ("POST", "/tidings/webhooks"),
)


@pytest.fixture
async def served(serve: Serve, coreapp: FakeCoreapp) -> Served:
    """Webapp in test mode, with a token of an administrator."""
    found = await serve(cloud_api=True, testing=True)
    await found.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    return found


@pytest.mark.parametrize(("method", "path"), CALLS)
async def test_outside_test_mode_nothing_exists(serve: Serve, method: str, path: str) -> None:
    found = await serve(cloud_api=True)
    await found.log_in()
    assert code(await found.http.request(method, path)) == (404, 1006)


@pytest.mark.parametrize(("method", "path"), CALLS)
async def test_every_call_needs_a_token(served: Served, method: str, path: str) -> None:
    for header in ("", "Bearer wrong", "Basic YWRtaW46c2VjcmV0"):
        response = await served.http.request(method, path, headers={"Authorization": header})
        assert code(response) == (401, 1005)


@pytest.mark.parametrize("host", ["attacker.example", "192.0.2.1:9090", "localhost.attacker.example", "10.0.0.1"])
@pytest.mark.parametrize(("method", "path"), CALLS)
async def test_a_host_that_is_neither_loopback_nor_configured_is_refused(
    served: Served, method: str, path: str, host: str
) -> None:
    response = await served.http.request(method, path, headers={"Host": host})
    assert code(response) == (421, 1025)


@pytest.mark.parametrize("host", ["localhost:9090", "127.0.0.1", "[::1]:9090", "wa.example"])
async def test_loopback_and_configured_hosts_are_accepted(serve: Serve, host: str) -> None:
    found = await serve(testing=True, http_hosts=frozenset(("wa.example",)))
    await found.log_in()
    assert (await found.http.get("/tidings/faults", headers={"Host": host})).status_code == 200


async def test_an_open_token_of_the_cloud_api_is_accepted(serve: Serve) -> None:
    found = await serve(testing=True, cloud_api=True, cloud_open=True)
    response = await found.http.get("/tidings/faults", headers={"Authorization": "Bearer any", "Host": "localhost"})
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/tidings/nothing", 404),
        ("GET", "/tidings/recipients/abc/shown", 404),
        ("PUT", "/tidings/faults", 405),
        ("GET", "/tidings/reset", 405),
        ("GET", "/tidings/webhooks", 405),
        ("GET", "/tidings/faults/1", 405),
        ("DELETE", "/tidings/faults/1", 404),
        ("GET", "/tidings/recipients/15550110000/shown?after=x", 400),
        # No robots run on the data directory of these tests.
        ("GET", "/tidings/recipients/15550110000/shown", 503),
    ],
)
async def test_wrong_calls_are_refused(served: Served, method: str, path: str, status: int) -> None:
    response = await served.http.request(method, path)
    assert response.status_code == status
    errors(response)


@pytest.mark.parametrize(
    "body",
    [
        [],
        "text",
        {"type": "nothing"},
        {"type": ["text"]},
        {"type": "text"},
        {"type": "text", "text": "Hello"},
        {"type": "contacts", "contacts": {}},
        {"type": "image", "image": {}},
        {"type": "image", "image": {"data": "not base64!"}},
        {"type": "image", "image": {"data": "not ASCII: é"}},
        {"type": "image", "image": {"data": "aGVsbG8=", "mime_type": 1}},
        {"type": "reaction", "reaction": {"emoji": "x"}},
        {"type": "reaction", "reaction": {"message_id": "wamid.broken", "emoji": "x"}},
        {"text": {"body": "Hello"}, "to": "abc"},
        {"text": {"body": "Hello"}, "to": 1},
        {"text": {"body": "Hello"}, "context": {"message_id": 1}},
        {"text": {"body": "Hello"}, "profile": {"name": "n" * 129}},
        {"text": {"body": "x" * 70_000}},
    ],
)
async def test_a_wrong_message_is_refused_before_the_robots_are_called(served: Served, body: Any) -> None:
    response = await served.http.post("/tidings/recipients/15550110000/messages", json=body)
    assert response.status_code == 400
    errors(response)


@pytest.mark.parametrize("path", ["/tidings/faults", "/tidings/recipients/15550110000/messages", "/tidings/webhooks"])
async def test_a_body_over_the_limit_and_broken_json_are_refused(served: Served, path: str) -> None:
    response = await served.http.post(path, content=b'{"text": {"body": "' + b"x" * 1_048_576 + b'"}}')
    assert code(response) == (413, 1025)
    assert code(await served.http.post(path, content=b"{")) == (400, 1025)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"target": "nothing"},
        {"target": "messages", "times": 0},
        {"target": "messages", "times": 1_000_001},
        {"target": "messages", "times": "many"},
        {"target": "messages", "every": -1},
        {"target": "messages", "http": 200},
        {"target": "messages", "http": 600},
        {"target": "messages", "code": -1},
        {"target": "messages", "retry_after_s": 86_401},
        {"target": "messages", "unknown": 1},
    ],
)
async def test_a_wrong_fault_is_refused(served: Served, body: Any) -> None:
    assert (await served.http.post("/tidings/faults", json=body)).status_code == 400
    assert (await served.http.get("/tidings/faults")).json()["faults"] == []


async def test_an_unknown_field_of_a_fault_is_named(served: Served) -> None:
    response = await served.http.post("/tidings/faults", json={"target": "messages", "kind": "x"})
    assert [problem["details"] for problem in errors(response)] == ["kind: is not a known field"]


async def _send(http: httpx.AsyncClient) -> httpx.Response:
    message = {"messaging_product": "whatsapp", "to": "15550110001", "text": {"body": "Hello"}}
    return await http.post(f"/v25.0/{NUMBER}/messages", json=message)


async def test_a_fault_fails_the_counted_calls_of_both_apis(served: Served) -> None:
    fault = {"target": "messages", "times": 3, "every": 0, "http": 429, "code": 130429, "retry_after_s": 42}
    response = await served.http.post("/tidings/faults", json=fault)
    assert response.status_code == 201
    listed = (await served.http.get("/tidings/faults")).json()["faults"]
    assert listed == response.json()["faults"]
    assert listed[0] | {"id": 1} == {
        "id": 1,
        "target": "messages",
        "left": 3,
        "every": 0,
        "http": 429,
        "code": 130429,
        "retry_after_s": 42,
        "calls": 0,
    }
    for _ in range(2):
        failed = await _send(served.http)
        assert graph_error(failed) == (429, 130429, "(#130429) Rate limit hit")
        assert failed.headers["retry-after"] == "42"
    failed = await served.send()
    assert code(failed) == (429, 1015)
    assert failed.headers["retry-after"] == "42"
    assert (await _send(served.http)).status_code == 200
    assert (await served.send()).status_code == 201


async def test_a_fault_without_a_status_has_that_of_its_code_in_each_api(served: Served) -> None:
    await served.http.post("/tidings/faults", json={"target": "messages", "times": 2, "code": 130429})
    assert code(await served.send()) == (429, 1015)
    assert (await _send(served.http)).status_code == 400


async def test_every_second_call_fails_until_the_fault_is_used_up(served: Served) -> None:
    await served.http.post("/tidings/faults", json={"target": "all", "times": 2, "every": 2, "http": 503, "code": 2})
    assert [(await served.send()).status_code for _ in range(6)] == [201, 503, 201, 503, 201, 201]


@pytest.mark.parametrize(
    ("target", "method", "path"),
    [
        ("messages", "POST", "/v1/messages"),
        ("media", "POST", "/v1/media"),
        ("media", "GET", "/v1/media/5eeb9b76-a4a5-4d1f-9b4e-3d0a9d9f6f6e"),
        ("templates", "GET", "/v1/configs/templates"),
        ("messages", "POST", f"/v25.0/{NUMBER}/messages"),
        ("media", "POST", f"/{NUMBER}/media"),
        ("media", "GET", "/v25.0/1500000000000000000"),
        ("templates", "GET", "/v25.0/2397639735729717/message_templates"),
        ("all", "GET", "/v25.0/2397639735729717/message_templates"),
    ],
)
async def test_a_fault_applies_to_the_paths_of_its_target(served: Served, target: str, method: str, path: str) -> None:
    await served.http.post("/tidings/faults", json={"target": target, "times": 1, "http": 599, "code": 1})
    others = [one for one in ("messages", "media", "templates", "webhooks") if target not in (one, "all")]
    assert (await served.http.get("/v1/users")).status_code == 200
    assert (await served.http.request(method, path)).status_code == 599
    for other in others:
        await served.http.post("/tidings/faults", json={"target": other, "times": 1, "http": 599, "code": 1})
    assert (await served.http.request(method, path)).status_code != 599


async def test_faults_are_deleted_one_by_one_and_together(served: Served) -> None:
    made = [
        (await served.http.post("/tidings/faults", json={"target": "messages"})).json()["faults"][0]["id"]
        for _ in range(3)
    ]
    assert (await served.http.delete(f"/tidings/faults/{made[1]}")).status_code == 200
    left = (await served.http.get("/tidings/faults")).json()["faults"]
    assert [fault["id"] for fault in left] == [made[0], made[2]]
    assert (await served.http.delete("/tidings/faults")).status_code == 200
    assert (await served.send()).status_code == 201


async def test_a_hundred_faults_are_the_limit(served: Served) -> None:
    for _ in range(100):
        assert (await served.http.post("/tidings/faults", json={"target": "media"})).status_code == 201
    assert code(await served.http.post("/tidings/faults", json={"target": "media"})) == (503, 1016)
    assert (await served.http.delete("/tidings/faults")).status_code == 200


async def test_the_metrics_count_the_calls_that_are_still_to_fail(served: Served) -> None:
    await served.http.post("/tidings/faults", json={"target": "templates", "times": 7})
    text = (await served.http.get("/metrics?format=prometheus")).text
    assert 'tidings_test_faults{target="templates"} 7.0' in text


@pytest.mark.parametrize(
    ("to", "status", "cloud", "v1"),
    [
        ("15550310429", 400, 130429, (429, 1015)),
        ("15550311047", 400, 131047, (500, 1000)),
        ("15550312001", 404, 132001, (404, 2001)),
        ("15550311026", 400, 131026, (400, 1013)),
    ],
)
async def test_a_number_is_refused_at_once_with_the_code_in_its_digits(
    served: Served, coreapp: FakeCoreapp, to: str, status: int, cloud: int, v1: tuple[int, int]
) -> None:
    message = {"messaging_product": "whatsapp", "to": to, "text": {"body": "Hello"}}
    assert graph_error(await served.http.post(f"/v25.0/{NUMBER}/messages", json=message))[:2] == (status, cloud)
    assert code(await served.send(to=to)) == v1
    assert coreapp.requested(core.AcceptMessage) == []


async def test_test_numbers_are_ordinary_outside_test_mode(serve: Serve, coreapp: FakeCoreapp) -> None:
    found = await serve()
    await found.log_in()
    assert (await found.send(to="15550310429")).status_code == 201


async def test_a_reset_is_refused_outside_an_embedded_installation(served: Served, coreapp: FakeCoreapp) -> None:
    response = await served.http.post("/tidings/reset")
    assert code(response) == (403, 1005)
    assert "tidings up" in errors(response)[0]["details"]
    assert coreapp.requested(core.EmptyQueues) == []
