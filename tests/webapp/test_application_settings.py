"""`/v1/settings/application`: values that are stored, values that are refused, and who is notified."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.webapp.conftest import Serve, Served, body, check_headers, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.business import users
from tidings.storage.database import Database
from tidings.wire import core

PATH = "/v1/settings/application"


async def current(api: Served) -> dict[str, Any]:
    response = await api.http.get(PATH)
    assert response.status_code == 200
    check_headers(response)
    payload = response.json()
    assert set(payload) == {"settings", "meta"}
    settings: dict[str, Any] = payload["settings"]["application"]
    return settings


def contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    return bool(whole == part)


async def test_unset_settings_show_the_documented_defaults(api: Served) -> None:
    assert await current(api) == body("settings_defaults")


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in body("settings_good")])
async def test_a_change_is_stored_and_other_settings_are_unchanged(api: Served, case: dict[str, Any]) -> None:
    before = await current(api)
    response = await api.http.patch(PATH, json=case["body"])
    assert response.status_code == 200
    assert response.json() == {"meta": {"version": "2.57.2", "api_status": "stable"}}
    after = await current(api)
    assert contains(after, case["expect"])
    assert set(after) == set(before)
    untouched = set(before) - set(case["expect"])
    assert {key: after[key] for key in untouched} == {key: before[key] for key in untouched}


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in body("settings_wrong")])
async def test_an_invalid_change_is_refused_with_the_reason_and_stores_nothing(
    api: Served, coreapp: FakeCoreapp, case: dict[str, Any]
) -> None:
    before = await current(api)
    response = await api.http.patch(PATH, json=case["body"])
    assert code(response) == (400, case["code"])
    assert errors(response)[0]["details"].startswith(case["details"])
    assert await current(api) == before
    assert not coreapp.requested(core.SettingsChanged)


async def test_the_installation_s_number_of_statuses_in_a_post_is_shown_unless_the_account_sets_its_own(
    serve: Serve,
) -> None:
    api = await serve(statuses_per_post=20)
    await api.log_in()
    assert (await current(api))["webhooks"]["max_statuses_per_post"] == 20
    assert (await api.http.patch(PATH, json={"webhooks": {"max_statuses_per_post": 1}})).status_code == 200
    assert (await current(api))["webhooks"]["max_statuses_per_post"] == 1


async def test_one_invalid_key_rejects_the_whole_change(api: Served) -> None:
    response = await api.http.patch(PATH, json={"sent_status": True, "webhooks": {"url": "nonsense"}})
    assert response.status_code == 400
    assert (await current(api))["sent_status"] is False


async def test_delete_restores_the_defaults(api: Served, coreapp: FakeCoreapp) -> None:
    await api.http.patch(PATH, json={"webhooks": {"url": "https://example.com/"}, "callback_persist": False})
    response = await api.http.delete(PATH)
    assert response.status_code == 200
    assert set(response.json()) == {"meta"}
    assert await current(api) == body("settings_defaults")
    assert len(coreapp.requested(core.SettingsChanged)) == 2


async def test_a_change_gets_its_response_after_the_coreapp_has_applied_it(api: Served, coreapp: FakeCoreapp) -> None:
    held: list[core.SettingsChanged] = []
    coreapp.respond(core.SettingsChanged, lambda q: held.append(q))
    change = asyncio.create_task(api.http.patch(PATH, json={"sent_status": True}))
    await coreapp.until(lambda: bool(held))
    assert held[0].account == "15550000000"
    assert not change.done()
    for connection in coreapp.connections:
        connection.send(core.Done(n=held[0].n))
    assert (await change).status_code == 200


async def test_a_change_is_stored_while_the_coreapp_is_unavailable(api: Served, coreapp: FakeCoreapp) -> None:
    await coreapp.stop()
    assert (await api.http.patch(PATH, json={"sent_status": True})).status_code == 200
    assert (await current(api))["sent_status"] is True


async def test_a_change_succeeds_after_5_seconds_without_a_response_of_the_coreapp(
    api: Served, coreapp: FakeCoreapp, caplog: pytest.LogCaptureFixture
) -> None:
    coreapp.respond(core.SettingsChanged, lambda request: None)
    loop = asyncio.get_running_loop()
    started = loop.time()
    with caplog.at_level(logging.INFO):
        assert (await api.http.patch(PATH, json={"sent_status": True})).status_code == 200
    assert loop.time() - started >= 5.0
    (changed,) = [record for record in caplog.records if record.message == "settings.changed"]
    assert changed.__dict__["coreapps_away"] == 1
    assert (await current(api))["sent_status"] is True


async def test_a_restarted_webapp_has_the_same_settings(api: Served, serve: Serve) -> None:
    await api.http.patch(PATH, json={"webhooks": {"url": "https://example.com/"}})
    other = await serve()
    await other.log_in()
    assert (await current(other))["webhooks"]["url"] == "https://example.com/"


async def test_concurrent_changes_are_all_stored(api: Served) -> None:
    changes: list[dict[str, Any]] = [
        {"sent_status": True},
        {"webhooks": {"url": "https://example.com/"}},
        {"webhooks": {"max_concurrent_requests": 12}},
        {"callback_persist": False},
        {"heartbeat_interval": 9},
    ]
    responses = await asyncio.gather(*(api.http.patch(PATH, json=change) for change in changes))
    assert {response.status_code for response in responses} == {200}
    settings = await current(api)
    assert all(contains(settings, change) for change in changes)


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_settings_require_an_administrator(serve: Serve, database: Database, method: str) -> None:
    served = await serve()
    await served.log_in()
    other = await serve()
    async with database.transaction() as connection:
        await connection.execute(users.table.update().values(role="user"))
    response = await other.http.request(method, PATH, headers=dict(served.http.headers))
    assert code(response) == (403, 1005)
    assert code(await other.http.request(method, PATH)) == (401, 1005)


async def test_two_names_of_one_setting_change_once_when_the_outcome_of_the_commit_is_unknown(
    api: Served, lost_commit: list[bool]
) -> None:
    # A client writes back what it has read, with one of the names changed.
    found = (await api.http.get(PATH)).json()["settings"]["application"]
    assert (found["sent_status"], found["webhooks"]["message"]["sent"]) == (False, False)
    lost_commit.append(True)
    response = await api.http.patch(PATH, json=found | {"sent_status": True})
    assert (response.status_code, lost_commit) == (200, [])
    found = (await api.http.get(PATH)).json()["settings"]["application"]
    assert (found["sent_status"], found["webhooks"]["message"]["sent"]) == (True, True)
