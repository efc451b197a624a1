"""`/v1/settings/application/media/providers`."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Any

import pytest

from tests.webapp.conftest import Serve, Served, body, check_headers, code, errors, make_secrets
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.roles import check_is_for_administrators, ordinary
from tidings.secrets.process_secrets import SecretKeys
from tidings.storage.business import media_providers, numbers
from tidings.storage.database import Database
from tidings.wire import core

PATH = "/v1/settings/application/media/providers"
META = {"version": "2.57.2", "api_status": "stable"}


async def current(api: Served) -> list[Any]:
    response = await api.http.get(PATH)
    assert response.status_code == 200
    check_headers(response)
    payload = response.json()
    assert set(payload) == {"settings", "meta"}
    providers: list[Any] = payload["settings"]["application"]["media"]["providers"]
    return providers


async def test_providers_are_added_replaced_and_deleted_by_name(api: Served) -> None:
    assert await current(api) == []
    files, pictures = body("media_providers")
    response = await api.http.post(PATH, json=[files])
    assert (response.status_code, response.json()) == (200, {"meta": META})
    await api.http.post(PATH, json=[pictures])
    assert await current(api) == [files, pictures]
    changed = pictures | {"config": {"basic": {"username": "a", "password": ""}}}
    await api.http.post(PATH, json=[pictures, changed])
    assert await current(api) == [files, changed]
    response = await api.http.delete(f"{PATH}/files")
    assert (response.status_code, response.json()) == (200, {"meta": META})
    assert await current(api) == [changed]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in body("media_providers_wrong")])
async def test_one_invalid_provider_rejects_the_whole_request(api: Served, case: dict[str, Any]) -> None:
    response = await api.http.post(PATH, json=case["body"])
    assert code(response) == (400, case["code"])
    assert errors(response)[0]["details"].startswith(case["details"])
    assert await current(api) == []


async def test_at_most_100_providers_are_accepted(api: Served) -> None:
    entries = [{"name": f"n{n}", "type": "www", "config": {"bearer": "x"}} for n in range(101)]
    assert code(await api.http.post(PATH, json=entries)) == (400, 1009)
    assert (await api.http.post(PATH, json=entries[:100])).status_code == 200
    assert (await api.http.post(PATH, json=entries[:5])).status_code == 200
    assert code(await api.http.post(PATH, json=entries[100:])) == (400, 1009)


@pytest.mark.parametrize("name", ["nobody", "Files", "files%20", "%00", "ü"])
async def test_an_unknown_provider_gets_404(api: Served, name: str) -> None:
    await api.http.post(PATH, json=body("media_providers"))
    assert code(await api.http.delete(f"{PATH}/{name}")) == (404, 1006)


async def test_credentials_are_stored_sealed_and_never_logged(
    api: Served, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        await api.http.post(PATH, json=body("media_providers"))
        await current(api)
    for record in caplog.records:
        assert "a password" not in str(record.__dict__)
        assert "a token" not in str(record.__dict__)
    async with database.reading() as connection:
        for kept in await media_providers.list_providers(connection, "15550000000"):
            assert b"password" not in kept.config
            assert b"token" not in kept.config


async def test_credentials_sealed_under_another_settings_key_are_shown_empty(api: Served, serve: Serve) -> None:
    await api.http.post(PATH, json=body("media_providers"))
    other = await serve(secrets=dataclasses.replace(make_secrets(), settings_key=SecretKeys.of(b"n" * 32)))
    await other.log_in()
    assert [entry["config"] for entry in await current(other)] == [{}, {}]


async def test_resetting_the_settings_keeps_providers(api: Served) -> None:
    await api.http.post(PATH, json=body("media_providers"))
    await api.http.delete("/v1/settings/application")
    assert len(await current(api)) == 2


@pytest.mark.parametrize(("method", "path"), [("GET", PATH), ("POST", PATH), ("DELETE", f"{PATH}/files")])
async def test_providers_require_an_administrator(api: Served, method: str, path: str) -> None:
    await check_is_for_administrators(api, method, path)


def linked(link: str) -> dict[str, Any]:
    media = {"link": link, "provider": {"name": "files"}}
    return {"to": "15550110001", "type": "image", "image": media}


async def test_credentials_without_a_host_list_require_an_administrator(api: Served, coreapp: FakeCoreapp) -> None:
    """Administrators can read them anyway. Another user could have them sent to an arbitrary host."""
    await api.http.post(PATH, json=[{"name": "files", "type": "www", "config": {"bearer": "secret"}}])
    message = linked("https://files.example.com/a.png")
    response = await api.http.post("/v1/messages", json=message, headers=await ordinary(api))
    assert code(response) == (403, 1005)
    assert "has no hosts" in errors(response)[0]["details"]
    assert not coreapp.requested(core.AcceptMessage)
    assert (await api.http.post("/v1/messages", json=message)).status_code == 201


async def test_credentials_with_a_host_list_go_only_to_their_hosts_for_any_user(
    api: Served, coreapp: FakeCoreapp
) -> None:
    entry = {
        "name": "files",
        "type": "www",
        "config": {"bearer": "secret", "hosts": ["files.example.com", "*.cdn.net"]},
    }
    assert (await api.http.post(PATH, json=[entry])).status_code == 200
    assert await current(api) == [entry]
    for headers in (await ordinary(api), {}):
        for link in ("https://evil.example.com/a.png", "https://files.example.com:8443/a.png"):
            response = await api.http.post("/v1/messages", json=linked(link), headers=headers)
            assert code(response) == (400, 1009)
            assert errors(response)[0]["details"] == "image.link: its host is not one of the provider's hosts"
        for link in ("https://files.example.com/a.png", "https://a.cdn.net/a.png"):
            response = await api.http.post("/v1/messages", json=linked(link), headers=headers)
            assert response.status_code == 201, response.text


@pytest.mark.parametrize("database_engine", ["mariadb"])
async def test_concurrent_requests_do_not_exceed_the_limit_of_providers(
    api: Served, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database.transaction() as connection:
        await numbers.add_first(connection, api.settings.account)
    list_providers, others = media_providers.list_providers, list[asyncio.Task[Any]]()

    def entries(prefix: str) -> list[Any]:
        return [{"name": f"{prefix}{n}", "type": "www", "config": {"bearer": "x"}} for n in range(60)]

    async def slow(*given: Any) -> Any:
        found = await list_providers(*given)
        if not others:
            others.append(asyncio.create_task(api.http.post(PATH, json=entries("b"))))
            # It ends now, unless it waits for this one.
            await asyncio.wait(others, timeout=1)
        return found

    monkeypatch.setattr(media_providers, "list_providers", slow)
    responses = [await api.http.post(PATH, json=entries("a")), await others[0]]
    assert sorted(response.status_code for response in responses) == [200, 400]
    assert len(await current(api)) == 60
