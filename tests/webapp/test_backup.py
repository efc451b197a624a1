"""`/v1/settings/backup` and `/v1/settings/restore`."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

import msgspec
import pytest

from tests.webapp.conftest import Serve, Served, check_headers, code, errors, make_secrets
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.roles import check_is_for_administrators
from tidings.runtime import password_box
from tidings.wire import core

BACKUP, RESTORE = "/v1/settings/backup", "/v1/settings/restore"
META = {"version": "2.57.2", "api_status": "stable"}
PASSWORD = "under seal"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(1000)


async def backup(api: Served, password: str = PASSWORD) -> str:
    answer = await api.http.post(BACKUP, json={"password": password})
    assert answer.status_code == 200, answer.text
    payload = answer.json()
    assert set(payload) == {"settings", "meta"}
    assert set(payload["settings"]) == {"data"}
    check_headers(answer)
    return str(payload["settings"]["data"])


async def restore(api: Served, data: str, password: str = PASSWORD) -> Any:
    return await api.http.post(RESTORE, json={"password": password, "data": data})


async def fill(api: Served) -> None:
    """Something of everything."""
    for method, path, content in (
        ("PATCH", "/v1/settings/application", {"webhooks": {"url": "https://example.com/"}, "sent_status": True}),
        ("PATCH", "/v1/settings/profile/about", {"text": "about us"}),
        ("POST", "/v1/settings/business/profile", {"address": "1 Example Street", "websites": ["https://example.com"]}),
        ("POST", "/v1/settings/account/two-step", {"pin": "123456"}),
    ):
        assert (await api.http.request(method, path, json=content)).status_code == 200
    assert (await api.http.post("/v1/settings/profile/photo", content=PNG)).status_code == 200


async def everything(api: Served) -> list[Any]:
    paths = ("/v1/settings/application", "/v1/settings/profile/about", "/v1/settings/business/profile")
    return [(await api.http.get(path)).json() for path in paths] + [
        (await api.http.get("/v1/settings/profile/photo")).content
    ]


async def wipe(api: Served) -> None:
    await api.http.delete("/v1/settings/application")
    await api.http.patch("/v1/settings/profile/about", json={"text": "another"})
    await api.http.post("/v1/settings/business/profile", json={})
    await api.http.delete("/v1/settings/profile/photo")
    await api.http.delete("/v1/settings/account/two-step")


async def test_what_was_set_comes_back_with_the_keys(api: Served, coreapp: FakeCoreapp) -> None:
    await fill(api)
    before = await everything(api)
    data = await backup(api)
    await wipe(api)
    assert await everything(api) != before
    answer = await restore(api, data)
    assert (answer.status_code, answer.json()) == (200, {"meta": META})
    assert await everything(api) == before
    [question] = coreapp.asked(core.RestoreKeys)
    assert (question.account, question.password, question.data) == (
        "15550000000",
        PASSWORD,
        "the keys of 15550000000",
    )
    assert coreapp.asked(core.SettingsChanged)
    shards = {"cc": "1", "phone_number": "5550000000", "shards": 1}
    assert code(await api.http.post("/v1/account/shards", json=shards)) == (400, 1008), "the PIN is demanded again"


async def test_an_installation_with_another_master_key_restores_it(api: Served, serve: Serve) -> None:
    await fill(api)
    before = await everything(api)
    data = await backup(api)
    other = await serve(secrets=dataclasses.replace(make_secrets(), master_key=b"n" * 32))
    await other.log_in()
    await wipe(other)
    assert (await restore(other, data)).status_code == 200
    assert await everything(other) == before


async def test_users_and_tokens_stay_as_they_are(api: Served) -> None:
    data = await backup(api)
    await api.http.post("/v1/users", json={"username": "observer", "password": "Tidings-2026!"})
    assert (await restore(api, data)).status_code == 200
    assert [user["username"] for user in (await api.http.get("/v1/users")).json()["users"]] == ["admin", "observer"]


async def test_a_backup_is_base64_without_anything_readable_and_different_each_time(api: Served) -> None:
    await fill(api)
    data = await backup(api)
    raw = base64.b64decode(data, validate=True)
    assert b"Example" not in raw
    assert data != await backup(api)


async def test_a_wrong_password_and_damaged_data_change_nothing(api: Served, coreapp: FakeCoreapp) -> None:
    await fill(api)
    before = await everything(api)
    data = await backup(api)
    damaged = data[:100] + ("A" if data[100] != "A" else "B") + data[101:]
    for content, password, field in (
        (data, "wrong", "password"),
        (damaged, PASSWORD, "password"),
        ("AAAA", PASSWORD, "data"),
        ("not base64", PASSWORD, "data"),
        (password_box.seal(PASSWORD, b"{}", purpose="tidings backup"), PASSWORD, "data"),
    ):
        answer = await restore(api, content, password)
        assert code(answer) == (400, 1009)
        assert errors(answer)[0]["details"].startswith(f"{field}: ")
    assert await everything(api) == before
    assert not coreapp.asked(core.RestoreKeys)


async def test_a_backup_of_another_number_or_version_is_refused(api: Served) -> None:
    content = msgspec.json.decode(password_box.open_box(PASSWORD, await backup(api), purpose="tidings backup"))
    for change, words in (({"number": "15559999999"}, "backup of 15559999999"), ({"version": 2}, "version 2")):
        data = password_box.seal(PASSWORD, msgspec.json.encode(content | change), purpose="tidings backup")
        answer = await restore(api, data)
        assert code(answer) == (400, 1009)
        assert words in errors(answer)[0]["details"]


async def test_a_coreapp_that_says_no_stops_it_before_anything_is_changed(api: Served, coreapp: FakeCoreapp) -> None:
    await fill(api)
    data = await backup(api)
    await wipe(api)
    before = (await api.http.get("/v1/settings/application")).json()
    coreapp.refuse(core.RestoreKeys, 1009, "data: the password is wrong")
    assert code(await restore(api, data)) == (400, 1009)
    assert (await api.http.get("/v1/settings/application")).json() == before
    coreapp.refuse(core.ExportKeys, 1011, "the number is not registered")
    assert code(await api.http.post(BACKUP, json={"password": PASSWORD})) == (503, 1011)


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        (BACKUP, {}, 1008),
        (BACKUP, {"password": ""}, 1009),
        (BACKUP, {"password": 5}, 1009),
        (RESTORE, {"password": "x"}, 1008),
        (RESTORE, {"data": "x"}, 1008),
        (RESTORE, {"password": "x", "data": ""}, 1009),
        (RESTORE, [], 1009),
    ],
)
async def test_what_is_missing_or_wrong_is_told(api: Served, path: str, content: Any, expected: int) -> None:
    assert code(await api.http.post(path, json=content)) == (400, expected)


@pytest.mark.parametrize("path", [BACKUP, RESTORE])
async def test_backups_are_for_administrators(api: Served, path: str) -> None:
    await check_is_for_administrators(api, "POST", path)
