"""`/waba_webhook` and `/health_status` with a key, and the request metrics of calls with a key."""

from __future__ import annotations

import json

import pytest

from tests.webapp.cloud.conftest import NUMBER
from tests.webapp.conftest import Serve, Served, code
from tests.webapp.d360.test_keys import INVALID, key_of, keyed
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.test_hot_routes import values
from tests.webapp.test_numbers import FIRST, SECOND, add_number
from tidings.storage.database import Database

PATH, OWN = "/waba_webhook", "/v1/configs/webhook"
THIRD = "15550000002"
HOOK = {"url": "http://127.0.0.1:8800/hook", "headers": {"Authorization": "Basic dTpw"}}
OTHER = {"url": "http://127.0.0.1:8801/", "headers": {}}
NONE = {"url": "", "headers": {}}


async def test_the_webhook_of_the_waba_is_that_of_each_of_its_numbers(
    api: Served, database: Database, coreapp: FakeCoreapp
) -> None:
    await add_number(database, waba_of=FIRST)
    await add_number(database, THIRD)
    await api.parts.numbers.poll()
    first = keyed(api, await key_of(api, database))
    second = keyed(api, await key_of(api, database, f"admin@{SECOND}"))
    third = keyed(api, await key_of(api, database, f"admin@{THIRD}"))
    assert (await first.get(PATH)).json() == NONE
    made = await second.post(PATH, json=HOOK)
    assert (made.status_code, made.json()) == (200, HOOK)
    for client in (first, second):
        assert (await client.get(OWN)).json() == (await client.get(PATH)).json() == HOOK
    # The third number has a WABA of its own.
    assert (await third.get(OWN)).json() == (await third.get(PATH)).json() == NONE
    assert (await first.post(OWN, json=OTHER)).status_code == 200
    assert (await second.get(OWN)).json() == HOOK
    # Two numbers with different ones have none together.
    assert (await second.get(PATH)).json() == NONE
    assert (await first.delete(PATH)).json() == NONE
    assert (await first.get(OWN)).json() == (await second.get(OWN)).json() == NONE


async def test_a_wrong_webhook_of_the_waba_is_explained(api: Served, database: Database) -> None:
    client = keyed(api, await key_of(api, database))
    response = await client.post(PATH, json={"url": "ftp://a"})
    assert response.status_code == 400
    assert response.json()["meta"]["developer_message"].startswith("url: should be an absolute URL")
    assert (await client.get(PATH)).json() == NONE
    # Without a key there is no such path.
    assert code(await api.http.get(PATH)) == (404, 1006)


async def test_the_health_of_the_number_is_that_of_the_cloud_api(
    serve: Serve, coreapp: FakeCoreapp, database: Database
) -> None:
    served = await serve(cloud_api=True)
    await served.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    response = await keyed(served, await key_of(served, database)).get("/health_status")
    assert response.status_code == 200, response.text
    assert response.json()["id"] == NUMBER
    assert response.json()["health_status"]["can_send_message"] in ("AVAILABLE", "BLOCKED")
    assert response.json().keys() == {"id", "health_status"}


async def test_without_the_cloud_api_the_health_of_the_number_is_that_of_v1(api: Served, database: Database) -> None:
    response = await keyed(api, await key_of(api, database)).get("/health_status")
    assert response.json() == (await api.http.get("/v1/health")).json()
    assert code(await api.http.get("/health_status")) == (404, 1006)


@pytest.mark.parametrize("cloud_api", [True, False])
async def test_the_health_of_the_number_is_only_read(
    serve: Serve, coreapp: FakeCoreapp, database: Database, cloud_api: bool
) -> None:
    served = await serve(cloud_api=cloud_api)
    await served.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    client = keyed(served, await key_of(served, database))
    # As a call of the number it would set the PIN.
    for method in ("POST", "DELETE", "PUT"):
        response = await client.request(method, "/health_status", json={"pin": "123456"})
        assert (response.status_code, response.json()["meta"]["http_code"]) == (405, 405)


@pytest.mark.parametrize(
    ("method", "path", "route", "status"),
    [
        ("GET", OWN, OWN, "2xx"),
        ("POST", OWN, OWN, "4xx"),
        ("GET", PATH, PATH, "2xx"),
        ("GET", "/v1/configs/templates?limit=1", "/v1/configs/templates", "2xx"),
        ("DELETE", "/v1/configs/templates/nothing", "/v1/configs/templates/{name}", "4xx"),
        ("GET", "/health_status", "/v1/health", "2xx"),
        ("GET", "/v1/settings/application", "/v1/settings/application", "2xx"),
        ("GET", "/nothing", "none", "4xx"),
    ],
)
async def test_each_call_with_a_key_is_counted_once_with_its_route(
    api: Served, database: Database, method: str, path: str, route: str, status: str
) -> None:
    client = keyed(api, await key_of(api, database))
    before = await values(api)
    response = await client.request(method, path, content=json.dumps({}) if method == "POST" else None)
    assert f"{response.status_code // 100}xx" == status
    after = await values(api)
    changed = {line for line in after if after[line] != before.get(line, 0)}
    counted = {line for line in changed if line.startswith("http_request_duration_seconds_count")}
    own = f'{{"handler": "{route}", "method": "{method}", "status": "{status}"}}'
    metrics = '{"handler": "/metrics", "method": "GET", "status": "2xx"}'
    assert {line.removeprefix("http_request_duration_seconds_count") for line in counted} - {metrics} == {own}


async def test_a_wrong_key_is_counted_once(api: Served) -> None:
    before = await values(api)
    assert (await keyed(api, {"D360-API-KEY": "wrong"}).get(OWN)).json() == INVALID
    after = await values(api)
    line = f'http_request_duration_seconds_count{{"handler": "{OWN}", "method": "GET", "status": "4xx"}}'
    assert after[line] == before.get(line, 0) + 1


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        (OWN, "PUT", "GET, HEAD, POST, DELETE"),
        (OWN, "PATCH", "GET, HEAD, POST, DELETE"),
        (PATH, "PUT", "GET, HEAD, POST, DELETE"),
        ("/v1/configs/templates", "PUT", "GET, HEAD, POST"),
        ("/v1/configs/templates", "DELETE", "GET, HEAD, POST"),
        ("/v1/configs/templates/order", "GET", "PATCH, DELETE"),
        ("/v1/configs/templates/import", "GET", "POST, PATCH, DELETE"),
        ("/health_status", "POST", "GET, HEAD"),
    ],
)
@pytest.mark.parametrize("cloud_api", [False, True])
async def test_a_wrong_method_gets_405_with_the_allowed_ones(
    serve: Serve, database: Database, *, cloud_api: bool, path: str, method: str, allowed: str
) -> None:
    api = await serve(cloud_api=cloud_api)
    await api.log_in()
    response = await keyed(api, await key_of(api, database)).request(method, path)
    words = f"{path} does not take {method}, it takes {allowed}"
    assert (response.status_code, response.json()) == (
        405,
        {"meta": {"http_code": 405, "developer_message": words, "success": False}},
    )
    assert response.headers["Allow"] == allowed
    # The key is checked first.
    assert (await keyed(api, {"D360-API-KEY": "wrong"}).request(method, path)).json() == INVALID


@pytest.mark.parametrize("path", [f"{OWN}/x", f"{PATH}/x", "/v1/configs", "/v1/configs/templates/a/b"])
async def test_an_unknown_path_gets_404_for_every_method(api: Served, database: Database, path: str) -> None:
    client = keyed(api, await key_of(api, database))
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        assert code(await client.request(method, path)) == (404, 1006)
