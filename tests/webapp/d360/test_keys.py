"""Requests with `D360-API-KEY`: authentication, v1 with a key, and `/v1/configs/webhook`."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.webapp.conftest import PASSWORD, Serve, Served, basic, body, code
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.keys import webhook_url
from tidings.storage.business import application_settings, users
from tidings.storage.database import Database

PATH = "/v1/configs/webhook"
INVALID = {"meta": {"http_code": 401, "developer_message": "Invalid api key", "success": False}}
# Literals from docs/api.md: wrong keys of an address at once.
WRONG_KEYS = 30
TEN_YEARS = 3_650 * 24 * 3600


async def key_of(api: Served, database: Database, name: str = "admin") -> dict[str, str]:
    """Return the header with a new key of a user."""
    async with database.reading() as connection:
        user = await users.find_user(connection, name)
    assert user is not None
    return {"D360-API-KEY": api.parts.tokens.issue(user, TEN_YEARS)[0]}


def keyed(api: Served, header: dict[str, str]) -> httpx.AsyncClient:
    """Return a client that has only a key."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(api.parts.app), base_url="http://127.0.0.1", headers=header)


async def test_a_key_sends_messages_of_v1(api: Served, database: Database) -> None:
    client = keyed(api, await key_of(api, database))
    sent = await client.post("/v1/messages", json=body("message_text"))
    assert sent.status_code == 201, sent.text
    assert set(sent.json()) == {"messages", "contacts", "meta"}
    assert code(await client.post("/v1/messages", json={"to": "15550110001"})) == (400, 1008)
    assert (await client.get("/v1/settings/application")).status_code == 200
    assert (await client.get("/v1/health")).status_code == 200


async def test_a_key_is_valid_in_another_webapp_which_has_not_issued_it(
    api: Served, serve: Serve, database: Database
) -> None:
    header = await key_of(api, database)
    other = await serve()
    assert (await keyed(other, header).get("/v1/settings/application")).status_code == 200


async def test_a_key_outlives_tokens_until_it_is_logged_out_or_the_password_changes(
    api: Served, database: Database
) -> None:
    first, second = await key_of(api, database), await key_of(api, database)
    assert (await keyed(api, first).post("/v1/users/logout")).status_code == 200
    assert (await keyed(api, first).get(PATH)).json() == INVALID
    assert (await keyed(api, second).get(PATH)).status_code == 200
    changed = await api.http.post(
        "/v1/users/login", headers=basic("admin", PASSWORD), json={"new_password": "Another-2026!"}
    )
    assert changed.status_code == 200
    assert (await keyed(api, second).get(PATH)).json() == INVALID


@pytest.mark.parametrize("key", ["", "wrong", "a.b.c", "x" * 5_000])
async def test_a_wrong_key_gets_the_error_of_360dialog_on_every_path(api: Served, key: str) -> None:
    for path in (PATH, "/v1/messages", "/v1/nothing", "/"):
        response = await keyed(api, {"D360-API-KEY": key}).post(path, json={})
        assert (response.status_code, response.json()) == (401, INVALID)
        assert response.headers["X-Request-ID"]


async def test_wrong_keys_are_limited_and_known_keys_are_served_all_the_same(api: Served, database: Database) -> None:
    good = await key_of(api, database)
    wrong = keyed(api, {"D360-API-KEY": "wrong"})
    responses = [await wrong.get(PATH) for _ in range(WRONG_KEYS + 3)]
    assert [response.status_code for response in responses[:WRONG_KEYS]] == [401] * WRONG_KEYS
    limited = responses[-1]
    assert limited.status_code == 429
    assert limited.json()["meta"]["http_code"] == 429
    assert int(limited.headers["Retry-After"]) >= 1
    assert (await keyed(api, good).get(PATH)).status_code == 200
    new = await key_of(api, database)
    assert (await keyed(api, new).get(PATH)).status_code == 200, "although this Webapp has not seen it before"


async def test_without_the_header_v1_is_unchanged(api: Served) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert code(await api.http.request(method, PATH)) == (404, 1006)
    assert code(await keyed(api, {}).get("/v1/settings/application")) == (401, 1005)
    settings = (await api.http.get("/v1/settings/application")).json()["settings"]["application"]
    assert set(settings["webhooks"]) == {"url", "max_concurrent_requests", "max_statuses_per_post", "message"}


async def test_the_webhook_is_that_of_v1_and_keeps_its_headers(
    api: Served, database: Database, coreapp: FakeCoreapp
) -> None:
    client = keyed(api, await key_of(api, database))
    assert (await client.get(PATH)).json() == {"url": "", "headers": {}}
    wanted = {"url": "http://127.0.0.1:8800/hook", "headers": {"Authorization": "Basic dTpw", "X-Shop": "7"}}
    made = await client.post(PATH, json=wanted)
    assert (made.status_code, made.json()) == (200, wanted)
    assert (await client.get(PATH)).json() == wanted
    settings = (await api.http.get("/v1/settings/application")).json()["settings"]["application"]
    assert settings["webhooks"]["url"] == wanted["url"]
    assert "headers" not in settings["webhooks"]
    async with database.reading() as connection:
        document = await application_settings.find_document(connection, "15550000000")
    assert "dTpw" not in document
    # A client that writes back what it has read changes nothing.
    same = await api.http.patch("/v1/settings/application", json={"webhooks": settings["webhooks"]})
    assert same.status_code == 200
    assert (await client.get(PATH)).json() == wanted
    # Another URL never receives the headers.
    changed = await api.http.patch("/v1/settings/application", json={"webhooks": {"url": "http://127.0.0.1:8801/"}})
    assert changed.status_code == 200
    assert (await client.get(PATH)).json() == {"url": "http://127.0.0.1:8801/", "headers": {}}
    assert (await client.post(PATH, json=wanted)).status_code == 200
    assert (await client.post(PATH, json={"url": wanted["url"]})).json() == {"url": wanted["url"], "headers": {}}
    assert (await client.delete(PATH)).json() == {"url": "", "headers": {}}
    assert (await client.get(PATH)).json() == {"url": "", "headers": {}}


async def test_headers_that_are_set_during_a_change_of_settings_are_kept(api: Served, database: Database) -> None:
    client, url = keyed(api, await key_of(api, database)), "http://127.0.0.1:8800/hook"
    for number in range(20):
        wanted = {"url": url, "headers": {"X-Shop": str(number)}}
        change = api.http.patch("/v1/settings/application", json={"webhooks": {"url": url}})
        both = await asyncio.gather(change, client.post(PATH, json=wanted))
        assert [response.status_code for response in both] == [200, 200]
        assert (await client.get(PATH)).json() == wanted


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({}, "url: is missing"),
        ({"url": ""}, "url: should not be empty"),
        ({"url": "ftp://a"}, "url: should be an absolute URL that begins with http:// or https://"),
        ({"url": "http://10.0.0.1/"}, "url: 10.0.0.1 is a private address"),
        ({"url": "http://127.0.0.1/", "headers": []}, "headers: should be a JSON object"),
        ({"url": "http://127.0.0.1/", "headers": {"A": 1}}, "headers.A: should be a string"),
        ({"url": "http://127.0.0.1/", "headers": {"A": "b\r\nC: d"}}, "headers: should be names and values"),
        ({"url": "http://127.0.0.1/", "headers": {"Content-Length": "1"}}, "headers: should be names and values"),
        ({"url": "http://127.0.0.1/", "headers": {"webhook-id": "1"}}, "headers: should be names and values"),
        ({"url": "http://127.0.0.1/", "headers": {"a b": "1"}}, "headers: should be names and values"),
        ({"url": "http://127.0.0.1/", "headers": {f"A{n}": "" for n in range(21)}}, "headers: should have at most 20"),
    ],
)
async def test_a_wrong_webhook_changes_nothing(api: Served, database: Database, wanted: object, words: str) -> None:
    client = keyed(api, await key_of(api, database))
    response = await client.post(PATH, json=wanted)
    assert response.status_code == 400
    assert set(response.json()) == {"meta"}
    assert response.json()["meta"]["developer_message"].startswith(words)
    assert (await client.get(PATH)).json() == {"url": "", "headers": {}}


async def test_a_body_that_is_not_json_is_refused(api: Served, database: Database) -> None:
    client = keyed(api, await key_of(api, database))
    response = await client.post(PATH, content=b"{")
    assert (response.status_code, response.json()["meta"]["success"]) == (400, False)
    assert response.json()["meta"]["developer_message"].startswith("the body is not JSON")


async def test_only_administrators_set_the_webhook(api: Served, database: Database) -> None:
    assert (await api.http.post("/v1/users", json={"username": "shop", "password": PASSWORD})).status_code == 201
    client = keyed(api, await key_of(api, database, "shop"))
    for method in ("GET", "POST", "DELETE"):
        response = await client.request(method, PATH)
        assert (response.status_code, response.json()["meta"]["http_code"]) == (403, 403)
    assert (await client.post("/v1/messages", json=body("message_text"))).status_code == 201


async def test_a_key_authenticates_its_connection(serve: Serve, database: Database) -> None:
    api = await serve(over_socket=True)
    await api.log_in()
    header = await key_of(api, database)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{api.port}", headers=header) as client:
        assert (await client.get(PATH)).status_code == 200
    limiter = api.parts.limiter
    key = header["D360-API-KEY"].encode()
    assert limiter.key_header == b"d360-api-key"
    assert limiter.recognise(b"Bearer " + key)


def test_names_of_our_headers_are_reserved_in_any_case() -> None:
    for name in ("Host", "content-type", "Transfer-Encoding", "WEBHOOK-SIGNATURE", "X-Request-Id", "User-Agent"):
        assert not webhook_url.is_header(name, "x")
    assert webhook_url.is_header("Authorization", "Basic dTpw")
    assert not webhook_url.is_header("A", "x" * 2_049)


def test_an_earlier_release_takes_a_url_with_headers_for_none() -> None:
    stored = webhook_url.with_headers("https://example.com/callback", {"X-Secret": "s3"})
    assert not stored.startswith("http")
    assert webhook_url.with_headers("https://example.com/callback", {}) == "https://example.com/callback"
