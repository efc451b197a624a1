"""Properties of every response, and what every request may contain."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pymysql
import pytest
import sqlalchemy
import sqlalchemy.event
import sqlalchemy.exc

from tests.webapp import raw
from tests.webapp.conftest import Serve, Served, body, check_headers, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage import outages
from tidings.storage.database import Database
from tidings.wire import core


@pytest.fixture
def api(served_api: Served) -> Served:
    """Webapp over a real socket, for all tests of this module."""
    return served_api


@pytest.mark.parametrize(
    "path",
    ["/v1/messages", "/v1/messages/", "//v1/messages", "/v1//messages", "///v1///messages///", "/v1/messages?x=1"],
)
async def test_trailing_and_doubled_slashes_are_ignored(api: Served, path: str) -> None:
    status, _, payload = await raw.call(api, "POST", path, body("message_text"))
    assert (status, payload["messages"]) == (201, [{"id": "gBEG1"}])


@pytest.mark.parametrize("name", ["AUTHORIZATION", "authorization", "aUTHORIZATION"])
async def test_the_case_of_header_names_and_schemes_does_not_matter(api: Served, name: str) -> None:
    value = api.http.headers.pop("Authorization")
    for scheme in ("Bearer", "bearer", "BEARER"):
        token = value.split()[1]
        status, _, _ = await raw.call(api, "GET", "/v1/health", headers={name: f"{scheme} {token}"})
        assert status == 200


async def test_unusual_headers_and_a_body_in_a_get_are_accepted(api: Served) -> None:
    for _ in range(2):
        response = await api.http.request(
            "GET",
            "/v1/health",
            json={},
            headers={"CONTENT_TYPE": "application/json", "User-Agent": "", "Accept": "text/html"},
        )
        assert response.status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("POST", "/", 405, 1025),
        ("GET", "/v1", 404, 1006),
        ("POST", "/v2/messages", 404, 1006),
        ("GET", "/v1/nothing/../../etc/passwd", 404, 1006),
        ("GET", "/%00%ff", 404, 1006),
        ("GET", "/v1/messages", 405, 1025),
        ("DELETE", "/v1/contacts", 405, 1025),
        ("PUT", "/v1/settings/application", 405, 1025),
        ("OPTIONS", "/v1/health", 405, 1025),
        ("BREW", "/v1/health", 400, 1025),
        ("POST", "/metrics", 405, 1025),
    ],
)
async def test_unknown_paths_and_methods_get_errors_in_the_apis_format(
    api: Served, method: str, path: str, status: int, error: int
) -> None:
    found, headers, payload = await raw.call(api, method, path)
    assert (found, payload["errors"][0]["code"]) == (status, error)
    assert headers["cache-control"] == "no-cache, private"
    if status == 405:
        assert headers["allow"]


async def test_a_wrong_method_gets_every_allowed_one(api: Served) -> None:
    response = await api.http.put("/v1/settings/application")
    assert response.headers["Allow"] == "GET, HEAD, PATCH, DELETE"
    assert (
        errors(response)[0]["details"]
        == "/v1/settings/application does not take PUT, it takes GET, HEAD, PATCH, DELETE"
    )


async def test_a_head_request_gets_the_response_of_a_get_without_the_body(served_api: Served) -> None:
    paths = [path for path, item in served_api.parts.app.openapi()["paths"].items() if "get" in item]
    for path in [*paths, "/v1/nothing", "/v1/messages", "/openapi.json"]:
        path = re.sub("{.*?}", "15550110001", path)
        get, head = [await served_api.http.request(method, path) for method in ("GET", "HEAD")]
        assert (head.status_code, head.content) == (get.status_code, b""), path
        varying = {"date", "x-request-id", "content-length"}
        assert {k: v for k, v in head.headers.items() if k not in varying} == {
            k: v for k, v in get.headers.items() if k not in varying
        }, path
        # These contain counters, which may have changed between the two requests.
        if "stats" not in path and "metrics" not in path and path != "/v1/support":
            assert head.headers["content-length"] == get.headers["content-length"], path


async def test_a_valid_request_id_is_kept_and_any_other_is_replaced(api: Served, coreapp: FakeCoreapp) -> None:
    async def id_for(given: str | None) -> str:
        headers = {} if given is None else {"X-Request-ID": given}
        response = await api.http.post("/v1/messages", json=body("message_text"), headers=headers)
        assert coreapp.requested(core.AcceptMessage)[-1].request_id == response.headers["X-Request-ID"]
        return str(response.headers["X-Request-ID"])

    assert await id_for("order-17.a:b_c") == "order-17.a:b_c"
    made = {await id_for(given) for given in (None, "", "x" * 65, "a b", "<script>", 'a"b')}
    assert len(made) == 6
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in made)


async def test_every_response_has_the_same_headers(api: Served) -> None:
    for method, path in (("GET", "/v1/health"), ("GET", "/metrics"), ("GET", "/docs"), ("GET", "/nowhere")):
        check_headers(await api.http.request(method, path, headers={"X-Request-ID": "mine"}))


async def test_an_internal_error_gets_500_without_details(
    api: Served, coreapp: FakeCoreapp, caplog: pytest.LogCaptureFixture
) -> None:
    # Fewer contacts than requested: no code expects that.
    coreapp.respond(core.CheckContacts, lambda q: core.Contacts(n=q.n, contacts=[]))
    response = await api.http.post("/v1/contacts", json={"contacts": ["+15550110001"]}, headers={"X-Request-ID": "bug"})
    assert code(response) == (500, 1000)
    assert errors(response)[0]["details"] == "unexpected error; the log has it under request bug"
    assert response.headers["X-Request-ID"] == "bug"
    [record] = [record for record in caplog.records if record.getMessage() == "http.failed"]
    assert record.request_id == "bug"  # type: ignore[attr-defined]
    assert record.exc_info is not None
    assert (await api.send()).status_code == 201


OUTAGE = sqlalchemy.exc.OperationalError("SELECT 1", {}, Exception("secret details"))
UNKNOWN = sqlalchemy.exc.OperationalError("COMMIT", {}, Exception("secret details"))
outages.note_commit(UNKNOWN)
REFUSED = sqlalchemy.exc.DBAPIError("SELECT 1", {}, pymysql.err.DataError(1406, "secret details"))
TEMPLATE = {"to": "15550110001", "type": "template", "template": {"name": "x", "language": {"code": "en_US"}}}


@pytest.mark.parametrize(
    ("error", "expected", "retry_after"),
    [
        (OUTAGE, (503, 1011), "1"),
        (outages.DatabaseTimeout("no answer"), (503, 1011), "1"),
        (outages.PoolExhausted("all in use"), (503, 1016), "1"),
        (UNKNOWN, (500, 1023), None),
        (REFUSED, (500, 1023), None),
    ],
    ids=["away", "hangs", "overloaded", "broke off in a commit", "refuses"],
)
async def test_a_database_outage_gets_503_or_500_if_the_outcome_is_unknown(
    api: Served, database: Database, error: Exception, expected: tuple[int, int], retry_after: str | None
) -> None:
    def away(*_: Any) -> None:
        raise error

    sqlalchemy.event.listen(database.engine.sync_engine, "before_cursor_execute", away)
    response = await api.http.get("/v1/settings/application")
    assert code(response) == expected
    assert response.headers.get("Retry-After") == retry_after
    assert "secret" not in response.text
    # Calls that need no database still work, with and without a key.
    assert (await api.send()).status_code == 201
    for headers in ({}, {"Idempotency-Key": "fresh"}):
        sent = await api.http.post("/v1/messages", json=body("message_text"), headers=headers)
        assert sent.status_code == 201
        # The template must be read, or the key before the message is refused.
        response = await api.http.post("/v1/messages", json=TEMPLATE, headers=headers)
        assert code(response) == expected, headers
        assert response.headers.get("Retry-After") == retry_after


async def test_requests_beyond_the_concurrency_limit_are_refused(serve: Serve, coreapp: FakeCoreapp) -> None:
    api = await serve(max_requests=2)
    await api.log_in()
    held: list[core.AcceptMessage] = []
    coreapp.respond(core.AcceptMessage, lambda q: held.append(q))
    waiting = [asyncio.create_task(api.send()) for _ in range(2)]
    await coreapp.until(lambda: len(held) == 2)
    response = await api.http.get("/v1/health")
    assert code(response) == (503, 1016)
    assert response.headers["Retry-After"] == "1"
    for request in held:
        for connection in coreapp.connections:
            connection.send(core.Accepted(n=request.n, id="gBEG", wa_id=request.to))
    assert {response.status_code for response in await asyncio.gather(*waiting)} == {201}
    assert (await api.http.get("/v1/health")).status_code == 200


async def test_a_client_that_disconnects_in_its_body_affects_no_other(api: Served) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", api.port)
    authorization = api.http.headers["Authorization"]
    head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\nContent-Length: 100\r\n\r\n"
    writer.write(head.encode() + b"{")
    await writer.drain()
    writer.transport.abort()
    assert (await api.send()).status_code == 201


async def test_responses_can_be_read_by_a_plain_client(api: Served) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{api.port}/", trust_env=False) as client:
        response = await client.get("v1/health/", headers={"Authorization": api.http.headers["Authorization"]})
    assert response.json()["health"]["gateway_status"] == "connected"
