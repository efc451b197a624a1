"""Several numbers behind one API: the token decides the number of each request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.manual_clock import ManualClock
from tests.webapp.conftest import PASSWORD, Serve, Served, basic, body, code, errors
from tests.webapp.coreapp_links import ScriptedMap
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.config.env import SettingsError
from tidings.secrets.api_key import ApiKey
from tidings.storage.business import numbers, users
from tidings.storage.business.shards import Owner
from tidings.storage.business.users import User
from tidings.storage.database import Database
from tidings.wire import core
from webapp.api.users.passwords import Hasher
from webapp.settings import Settings

FIRST, SECOND = "15550000000", "15550000001"
OTHER_PASSWORD = "Other-2026!"


async def add_number(database: Database, number: str = SECOND, *, waba_of: str = "") -> None:
    """Add a number as `tidings number add` does."""
    hasher = Hasher(memory_kib=8)
    password_hash = await hasher.hash("The-first-1")
    hasher.close()
    async with database.transaction() as connection:
        await numbers.add_first(connection, FIRST)
        row = await numbers.add(connection, number, waba_of=waba_of)
        login = users.login_name(row, "admin")
        await users.add_user(connection, User(login, number, users.ADMIN, password_hash, True, 1, name="admin"))


async def log_in(api: Served, user: str, password: str = OTHER_PASSWORD, host: str = "") -> httpx.Response:
    headers = basic(user, password) | ({"Host": host} if host else {})
    return await api.http.post("/v1/users/login", headers=headers)


async def first_log_in(api: Served, number: str = SECOND) -> dict[str, str]:
    """Replace the first password of a further number's administrator. Returns the header with its token."""
    headers, body = basic(f"admin@{number}", "The-first-1"), {"new_password": OTHER_PASSWORD}
    return bearer(await api.http.post("/v1/users/login", headers=headers, json=body))


def bearer(response: httpx.Response) -> dict[str, str]:
    assert response.status_code == 200, response.text
    return {"Authorization": "Bearer " + response.json()["users"][0]["token"]}


async def second(api: Served, database: Database) -> dict[str, str]:
    """Add a second number. Returns the header of its administrator."""
    await add_number(database)
    await api.parts.numbers.poll()
    return await first_log_in(api)


async def test_the_token_decides_the_number_of_a_message(api: Served, database: Database, coreapp: FakeCoreapp) -> None:
    headers = await second(api, database)
    assert (await api.send()).status_code == 201
    assert (await api.http.post("/v1/messages", json=body("message_text"), headers=headers)).status_code == 201
    assert [request.account for request in coreapp.requested(core.AcceptMessage)] == [FIRST, SECOND]


async def test_a_message_goes_to_the_owner_of_its_numbers_shard(
    serve: Serve, database: Database, coreapp: FakeCoreapp
) -> None:
    other = await FakeCoreapp().start()
    owners = [Owner(0, "one", coreapp.address, 1), Owner(32, "two", other.address, 1)]
    api = await serve(shard_map=ScriptedMap(*owners))
    await api.log_in()
    headers = await second(api, database)
    assert (await api.send()).status_code == 201
    assert (await api.http.post("/v1/messages", json=body("message_text"), headers=headers)).status_code == 201
    assert [request.account for request in coreapp.requested(core.AcceptMessage)] == [FIRST]
    assert [request.account for request in other.requested(core.AcceptMessage)] == [SECOND]
    health = (await api.http.get("/v1/health", headers=headers)).json()["health"]
    assert health == {"gateway_status": "connected"}
    assert {request.account for request in other.requested(core.GetHealth)} == {SECOND}
    await other.stop()


async def test_a_number_without_an_owner_does_not_disturb_the_others(
    serve: Serve, database: Database, coreapp: FakeCoreapp
) -> None:
    api = await serve(shard_map=ScriptedMap(Owner(0, "one", coreapp.address, 1)), owner_timeout=0.1)
    await api.log_in()
    headers = await second(api, database)
    failed = await api.http.post("/v1/messages", json=body("message_text"), headers=headers)
    assert code(failed) == (503, 1011)
    assert (await api.send()).status_code == 201


async def test_users_of_two_numbers_may_have_the_same_name(serve: Serve, database: Database) -> None:
    clock = ManualClock()
    api = await serve(clock=clock)
    await api.log_in()
    headers = await second(api, database)
    # So that four different users may log in.
    clock.advance(60)
    for own in ({}, headers):
        created = await api.http.post(
            "/v1/users", json={"username": "observer", "password": "Observer-1!"}, headers=own
        )
        assert created.status_code == 201
        listed = (await api.http.get("/v1/users", headers=own)).json()["users"]
        assert [user["username"] for user in listed] == ["admin", "observer"]
    assert bearer(await log_in(api, f"observer@{SECOND}", "Observer-1!"))
    changed = await api.http.put("/v1/users/observer", json={"password": "Changed-1!"}, headers=headers)
    assert changed.json()["users"] == [{"username": "observer"}]
    assert code(await log_in(api, f"observer@{SECOND}", "Observer-1!")) == (401, 1005)
    assert bearer(await log_in(api, "observer", "Observer-1!"))
    assert (await api.http.delete("/v1/users/observer", headers=headers)).status_code == 200
    assert bearer(await log_in(api, "observer", "Observer-1!"))


async def test_a_user_of_the_first_number_cannot_have_the_login_name_of_another_number(
    api: Served, database: Database
) -> None:
    await second(api, database)
    new = {"username": f"bob@{SECOND}", "password": "Observer-1!"}
    assert (await api.http.post("/v1/users", json=new)).status_code == 500
    assert [user["username"] for user in (await api.http.get("/v1/users")).json()["users"]] == ["admin"]


async def test_settings_profile_and_templates_belong_to_the_number(api: Served, database: Database) -> None:
    headers = await second(api, database)
    settings = {"callback_backoff_delay_ms": "5000"}
    assert (await api.http.patch("/v1/settings/application", json=settings, headers=headers)).status_code == 200

    async def delay(own: Mapping[str, str]) -> Any:
        found = (await api.http.get("/v1/settings/application", headers=own)).json()["settings"]["application"]
        return found["wa_id"], str(found["callback_backoff_delay_ms"])

    assert await delay({}) == (FIRST, "3000")
    assert await delay(headers) == (SECOND, "5000")

    (template, *_) = body("templates_good")
    assert (await api.http.post("/v1/configs/templates", json=template)).status_code == 201
    assert template["name"] in (await api.http.get("/v1/configs/templates")).text
    assert template["name"] not in (await api.http.get("/v1/configs/templates", headers=headers)).text


async def test_ids_of_another_number_are_unknown(api: Served, database: Database) -> None:
    headers = await second(api, database)
    png = b"\x89PNG\r\n\x1a\n" + b"\x00" * 64
    stored = await api.http.post("/v1/media", content=png, headers={"Content-Type": "image/png"})
    assert stored.status_code in (200, 201), stored.text
    media_id = stored.json()["media"][0]["id"]
    assert (await api.http.get(f"/v1/media/{media_id}")).status_code == 200
    assert code(await api.http.get(f"/v1/media/{media_id}", headers=headers)) == (404, 1006)
    assert code(await api.http.delete(f"/v1/media/{media_id}", headers=headers)) == (404, 1006)
    created = await api.http.post("/v1/users", json={"username": "observer", "password": "Observer-1!"})
    assert created.status_code == 201
    assert code(await api.http.get("/v1/users/observer", headers=headers)) == (404, 1006)


async def test_each_number_has_rate_limits_of_its_own(serve: Serve, database: Database) -> None:
    api = await serve(messages_rate=0.001, messages_burst=2)
    await api.log_in()
    headers = await second(api, database)
    assert [(await api.send()).status_code for _ in range(3)] == [201, 201, 429]
    message = body("message_text")
    sent = [(await api.http.post("/v1/messages", json=message, headers=headers)).status_code for _ in range(3)]
    assert sent == [201, 201, 429]
    limited = await api.http.post("/v1/messages", json=message, headers=headers)
    assert errors(limited)[0]["details"] == "over the rate limit of messages"


async def test_stats_are_those_of_the_tokens_number_and_with_the_api_key_of_all(
    serve: Serve, database: Database, coreapp: FakeCoreapp
) -> None:
    lines = [
        "# TYPE callback_queue_size gauge",
        f'callback_queue_size{{number="{FIRST}",shard="0"}} 2.0',
        f'callback_queue_size{{number="{SECOND}",shard="32"}} 3.0',
        "# TYPE in_message_persisted_total counter",
        f'in_message_persisted_total{{number="{FIRST}",type="text"}} 4.0',
        f'in_message_persisted_total{{number="{SECOND}",type="text"}} 5.0',
        "# TYPE tidings_shard_epoch gauge",
        'tidings_shard_epoch{shard="0"} 1.0',
        'tidings_shard_epoch{shard="32"} 7.0',
        "# TYPE tidings_messages_accepted_total counter",
        'tidings_messages_accepted_total{encrypted="at once"} 9.0',
    ]
    coreapp.respond(core.GetMetrics, lambda q: core.Metrics(q.n, "\n".join(lines) + "\n"))
    api = await serve(api_key=ApiKey("an API key of the tests"))
    await api.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    headers = await second(api, database)
    key = {"Authorization": "Apikey an API key of the tests"}
    for own, callbacks, received, epochs in (({}, 2, 4, [1]), (headers, 3, 5, [7]), (key, 5, 9, [1, 7])):
        found = (await api.http.get("/v1/stats/app", headers=own)).json()["stats"]["app"]
        assert found["callback_queue_size"]["data"] == [{"labels": {}, "value": callbacks}]
        assert found["in_message_persisted"]["data"] == [{"labels": {"type": "text"}, "value": received}]
        assert [each["value"] for each in found["tidings_shard_epoch"]["data"]] == epochs
        assert [each["value"] for each in found["tidings_messages_accepted"]["data"]] == [9]


async def test_an_idempotency_key_of_one_number_is_fresh_for_another(
    api: Served, database: Database, coreapp: FakeCoreapp
) -> None:
    headers = await second(api, database)
    for own in ({}, headers):
        sent = await api.http.post("/v1/messages", json=body("message_text"), headers={**own, "Idempotency-Key": "k1"})
        assert sent.status_code == 201
    keyed = [(request.account, request.username) for request in coreapp.requested(core.AcceptMessage)]
    assert keyed == [(FIRST, "admin"), (SECOND, f"admin@{SECOND}")]


async def set_state(api: Served, database: Database, state: str) -> None:
    async with database.transaction() as connection:
        await numbers.set_state(connection, SECOND, state)
    await api.parts.common.changes.run_once()


async def test_a_paused_number_responds_with_503_and_the_others_continue(api: Served, database: Database) -> None:
    headers = await second(api, database)
    await set_state(api, database, numbers.PAUSED)
    paused = await api.http.post("/v1/messages", json=body("message_text"), headers=headers)
    assert code(paused) == (503, 1011)
    assert SECOND in errors(paused)[0]["details"]
    assert paused.headers["Retry-After"] == "60"
    assert code(await log_in(api, f"admin@{SECOND}")) == (503, 1011)
    assert (await api.http.get("/v1/health", headers=headers)).status_code == 200
    assert (await api.send()).status_code == 201
    await set_state(api, database, numbers.ACTIVE)
    assert (await api.http.post("/v1/messages", json=body("message_text"), headers=headers)).status_code == 201


async def test_tokens_of_a_removed_number_are_refused(api: Served, database: Database) -> None:
    headers = await second(api, database)
    await set_state(api, database, numbers.REMOVING)
    assert code(await api.http.post("/v1/messages", json=body("message_text"), headers=headers)) == (401, 1005)
    assert (await api.send()).status_code == 201


async def test_a_number_that_was_just_added_is_served_before_the_next_poll(api: Served, database: Database) -> None:
    await add_number(database)
    headers = await first_log_in(api)
    assert (await api.http.get("/v1/users", headers=headers)).json()["users"] == [
        {"ROLES": "ROLE_ADMIN", "username": "admin"}
    ]


HOSTS = {"wa0.example": FIRST, "wa1.example": SECOND}


async def test_a_host_completes_bare_names_and_refuses_tokens_of_other_numbers(
    serve: Serve, database: Database
) -> None:
    api = await serve(number_hosts=HOSTS)
    await api.log_in()
    await second(api, database)
    for name in ("admin", f"admin@{SECOND}"):
        headers = bearer(await log_in(api, name, host="WA1.example:9090"))
        users_there = await api.http.get("/v1/users", headers={**headers, "Host": "wa1.example"})
        assert users_there.status_code == 200
    assert code(await api.http.get("/v1/users", headers={**headers, "Host": "wa0.example"})) == (401, 1005)
    assert code(await api.http.get("/v1/users", headers={"Host": "wa1.example"})) == (401, 1005)
    # At other hosts, as without the variable, the token alone decides.
    assert (await api.http.get("/v1/users", headers={**headers, "Host": "elsewhere"})).status_code == 200
    assert code(await log_in(api, f"admin@{SECOND}", PASSWORD, host="wa0.example")) == (401, 1005)
    assert code(await log_in(api, "admin", PASSWORD, host="wa1.example")) == (401, 1005)
    assert bearer(await log_in(api, "admin", PASSWORD, host="wa0.example"))
    # The right password of another number's user is of no use at this host.
    assert code(await log_in(api, f"admin@{SECOND}", OTHER_PASSWORD + "x", host="wa0.example")) == (401, 1005)
    refused = await api.http.post(
        "/v1/users/login", headers=basic(f"admin@{SECOND}", OTHER_PASSWORD) | {"Host": "wa0.example"}
    )
    assert code(refused) == (401, 1005)


async def test_a_host_of_an_unknown_number_is_a_configuration_error(serve: Serve) -> None:
    api = await serve(number_hosts={"wa0.example": FIRST, "wa9.example": "15550000009"})
    with pytest.raises(SettingsError, match=r"TIDINGS_NUMBER_HOSTS: wa9\.example=15550000009: no such number"):
        api.parts.numbers.require_hosts()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("wa1.example=", "has the host 'wa1.example' without a number"),
        ("wa1.example", "has the host 'wa1.example' without a number"),
        ("=15550000001", "is no host name"),
        ("wa1.example:80=15550000001", "is no host name"),
        ("wa1.example=1555x", "is not one of 7 to 15 digits"),
        ("wa1.example=15550000001,WA1.example=15550000002", "names the host 'wa1.example' twice"),
    ],
)
def test_wrong_number_hosts_are_refused(value: str, words: str, tmp_path: Any) -> None:
    with pytest.raises(SettingsError, match=r"TIDINGS_NUMBER_HOSTS") as failed:
        Settings.read({"TIDINGS_DATA_DIR": str(tmp_path), "TIDINGS_NUMBER_HOSTS": value})
    assert words in str(failed.value)
    found = Settings.read({"TIDINGS_DATA_DIR": str(tmp_path), "TIDINGS_NUMBER_HOSTS": "wa1.example=+15550000001, "})
    assert found.number_hosts == {"wa1.example": "15550000001"}
    assert "wa1.example" in found.tls_names
