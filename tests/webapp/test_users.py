"""`/v1/users`: who may create, see, change and delete users, and what happens to their tokens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.manual_clock import ManualClock
from tests.webapp.conftest import PASSWORD, Serve, Served, basic, body, check_headers, code, errors
from tests.webapp.roles import check_is_for_administrators, check_takes_a_token, ordinary
from tidings.storage.business import tokens, users
from tidings.storage.database import Database

USERS = "/v1/users"
OTHER_PASSWORD = "Another-2026!"
META = {"version": "2.57.2", "api_status": "stable"}
# Literals from docs/security.md and docs/api.md: guesses at once for a user, and at a familiar address.
BURST, FAMILIAR = 10, 20


async def make(api: Served, name: str = "observer", password: str = PASSWORD) -> Any:
    return await api.http.post(USERS, json={"username": name, "password": password})


async def can_log_in(api: Served, name: str, password: str) -> bool:
    response = await api.http.post("/v1/users/login", headers=basic(name, password))
    assert response.status_code in (200, 401)
    return bool(response.status_code == 200)


async def opens(api: Served, header: dict[str, str]) -> bool:
    response = await api.http.get("/v1/health", headers=header)
    assert response.status_code in (200, 401)
    return bool(response.status_code == 200)


async def test_a_new_user_can_log_in_and_is_no_administrator(api: Served) -> None:
    response = await make(api)
    assert response.status_code == 201
    assert response.json() == {"users": [{"username": "observer"}], "meta": META}
    check_headers(response)
    assert await can_log_in(api, "observer", PASSWORD)
    found = await api.http.get(f"{USERS}/observer")
    assert found.status_code == 200
    assert found.json() == {"users": [{"ROLES": "ROLE_USER", "username": "observer"}], "meta": META}


async def test_setting_a_password_lifts_the_login_limit_of_its_user(api: Served) -> None:
    for number in range(BURST + 1):
        guess = await api.http.post("/v1/users/login", headers=basic("observer", f"guess {number}"))
    assert code(guess) == (429, 1015)
    await make(api)
    assert await can_log_in(api, "observer", PASSWORD)
    assert (await api.http.put(f"{USERS}/observer", json={"password": OTHER_PASSWORD})).status_code == 200
    assert await can_log_in(api, "observer", OTHER_PASSWORD)


async def test_the_built_in_user_is_an_administrator(api: Served) -> None:
    response = await api.http.get(f"{USERS}/admin")
    assert response.json()["users"] == [{"ROLES": "ROLE_ADMIN", "username": "admin"}]


@pytest.mark.parametrize("name", ["four", "x" * 32, "ünïcodé", "a.b_c-d@e", "日本語の名"])
async def test_names_of_4_to_32_characters_are_accepted(api: Served, name: str) -> None:
    assert (await make(api, name)).status_code == 201
    response = await api.http.get(f"{USERS}/{name}")
    assert response.json()["users"][0]["username"] == name
    assert await can_log_in(api, name, PASSWORD)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in body("users_wrong")])
async def test_an_invalid_user_is_refused_with_the_reason(api: Served, case: dict[str, Any]) -> None:
    response = await api.http.post(USERS, json=case["body"])
    assert code(response) == (400, case["code"])
    assert errors(response)[0]["details"].startswith(case["details"])
    listed = (await api.http.get(USERS)).json()["users"]
    assert [user["username"] for user in listed] == ["admin"]


async def test_a_duplicate_user_gets_the_documented_500(api: Served) -> None:
    await make(api)
    for name in ("observer", "admin"):
        if name == "observer":
            response = await make(api, name, OTHER_PASSWORD)
            assert code(response) == (500, 1014)
            assert errors(response) == [
                {"code": 1014, "title": "Internal error", "details": "Unable to create user. Already exist?"}
            ]
    assert code(await make(api, "admin")) == (500, 1014)
    assert await can_log_in(api, "observer", PASSWORD)
    assert not await can_log_in(api, "observer", OTHER_PASSWORD)


async def test_one_of_several_concurrent_creations_gets_the_name(api: Served) -> None:
    responses = await asyncio.gather(*(make(api, "observer", f"Tidings-{n}!") for n in range(6)))
    assert sorted(response.status_code for response in responses) == [201, 500, 500, 500, 500, 500]


async def test_all_users_are_listed_for_administrators(api: Served) -> None:
    await make(api, "zoe-", PASSWORD)
    response = await api.http.get(USERS)
    assert response.status_code == 200
    assert response.json()["users"] == [
        {"ROLES": "ROLE_ADMIN", "username": "admin"},
        {"ROLES": "ROLE_USER", "username": "zoe-"},
    ]
    await check_is_for_administrators(api, "GET", USERS)


async def test_creating_and_deleting_users_requires_an_administrator(api: Served) -> None:
    await check_is_for_administrators(api, "POST", USERS, json={"username": "another", "password": PASSWORD})
    await check_is_for_administrators(api, "DELETE", f"{USERS}/observer")
    await check_is_for_administrators(api, "DELETE", f"{USERS}/nobody")


async def test_an_ordinary_user_can_read_and_change_only_itself(api: Served) -> None:
    await make(api, "somebody")
    own = await ordinary(api)
    assert (await api.http.get(f"{USERS}/observer", headers=own)).status_code == 200
    for name in ("admin", "somebody", "nobody"):
        assert code(await api.http.get(f"{USERS}/{name}", headers=own)) == (403, 1005)
        changed = await api.http.put(f"{USERS}/{name}", headers=own, json={"password": OTHER_PASSWORD})
        assert code(changed) == (403, 1005)
    for method in ("GET", "PUT", "DELETE"):
        await check_takes_a_token(api, method, f"{USERS}/observer", json={"password": OTHER_PASSWORD})


async def test_a_password_can_be_changed_by_its_user_and_by_an_administrator(api: Served) -> None:
    own = await ordinary(api)
    both = {"password": OTHER_PASSWORD, "old_password": PASSWORD}
    response = await api.http.put(f"{USERS}/observer", headers=own, json=both)
    assert response.status_code == 200
    assert response.json() == {"users": [{"username": "observer"}], "meta": META}
    assert await can_log_in(api, "observer", OTHER_PASSWORD)
    assert not await can_log_in(api, "observer", PASSWORD)
    assert (await api.http.put(f"{USERS}/observer", json={"password": PASSWORD})).status_code == 200
    assert await can_log_in(api, "observer", PASSWORD)


@pytest.mark.parametrize("name", ["observer", "admin"])
async def test_changing_the_own_password_needs_the_old_one_10_minutes_after_login(serve: Serve, name: str) -> None:
    clock = ManualClock()
    api = await serve(clock=clock)
    await api.log_in()
    own = await ordinary(api) if name == "observer" else {"Authorization": api.http.headers["Authorization"]}
    path, new = f"{USERS}/{name}", {"password": OTHER_PASSWORD}
    clock.advance(600)
    refused = await api.http.put(path, headers=own, json=new)
    assert code(refused) == (400, 1008)
    assert errors(refused)[0]["details"] == (
        "old_password: is missing; give it, or log in again and repeat this within 10 minutes"
    )
    assert code(await api.http.put(path, headers=own, json={**new, "old_password": "x"})) == (403, 1005)
    login = await api.http.post("/v1/users/login", headers=basic(name, PASSWORD))
    later = {"Authorization": "Bearer " + login.json()["users"][0]["token"]}
    clock.advance(599)
    assert code(await api.http.put(path, headers=later, json={**new, "old_password": "x"})) == (403, 1005)
    assert await opens(api, own)
    assert (await api.http.put(path, headers=later, json=new)).status_code == 200
    assert await can_log_in(api, name, OTHER_PASSWORD)
    assert not await can_log_in(api, name, PASSWORD)
    assert not await opens(api, own)
    assert not await opens(api, later)


@pytest.mark.parametrize("name", ["observer", "admin"])
async def test_the_own_password_can_be_changed_with_the_old_one(serve: Serve, name: str) -> None:
    clock = ManualClock()
    api = await serve(clock=clock)
    await api.log_in()
    own = await ordinary(api) if name == "observer" else {"Authorization": api.http.headers["Authorization"]}
    clock.advance(601)
    both = {"password": OTHER_PASSWORD, "old_password": PASSWORD}
    assert (await api.http.put(f"{USERS}/{name}", headers=own, json=both)).status_code == 200
    assert await can_log_in(api, name, OTHER_PASSWORD)
    assert not await opens(api, own)


async def test_the_old_password_cannot_be_guessed_with_a_token(api: Served) -> None:
    own = await ordinary(api)
    for number in range(FAMILIAR):
        guess = {"password": OTHER_PASSWORD, "old_password": f"wrong {number}"}
        response = await api.http.put(f"{USERS}/observer", headers=own, json=guess)
        if response.status_code == 429:
            break
        assert code(response) == (403, 1005)
    response = await api.http.put(f"{USERS}/observer", headers=own, json=guess | {"old_password": "another"})
    assert code(response) == (429, 1015)
    assert await can_log_in(api, "observer", PASSWORD)


async def test_a_password_change_revokes_the_user_s_tokens_on_every_webapp(api: Served, serve: Serve) -> None:
    other, own = await serve(), await ordinary(api)
    await other.parts.tokens.poll()
    assert await opens(other, own)
    await api.http.put(f"{USERS}/observer", json={"password": OTHER_PASSWORD})
    assert not await opens(api, own)
    assert await other.parts.tokens.poll() == 1
    assert not await opens(other, own)
    assert not await opens(await serve(), own)
    assert await opens(api, {"Authorization": api.http.headers["Authorization"]}), "the administrator's stays"
    assert await can_log_in(api, "observer", OTHER_PASSWORD)


async def test_all_tokens_of_a_user_can_be_revoked_and_later_ones_are_valid(api: Served, serve: Serve) -> None:
    other = await serve()
    for by_user in (True, False):
        first, second = await ordinary(api), await ordinary(api)
        assert await opens(other, second)
        headers = first if by_user else {}
        response = await api.http.delete(f"{USERS}/observer/tokens", headers=headers)
        assert response.status_code == 200
        assert response.json() == {"users": [{"username": "observer"}], "meta": META}
        await other.parts.tokens.poll()
        later = await ordinary(api)
        for webapp in (api, other, await serve()):
            assert not await opens(webapp, first)
            assert not await opens(webapp, second)
            assert await opens(webapp, later)
    own = await ordinary(api)
    assert code(await api.http.delete(f"{USERS}/admin/tokens", headers=own)) == (403, 1005)
    assert code(await api.http.delete(f"{USERS}/nobody/tokens")) == (404, 1006)
    await check_takes_a_token(api, "DELETE", f"{USERS}/observer/tokens")


async def test_the_last_of_concurrent_changes_of_a_user_wins(api: Served) -> None:
    await ordinary(api)
    passwords = [f"Another-{number}!" for number in range(3)]
    responses = await asyncio.gather(*(api.http.put(f"{USERS}/observer", json={"password": new}) for new in passwords))
    assert [response.status_code for response in responses] == [200, 200, 200]
    assert sum([await can_log_in(api, "observer", new) for new in passwords]) == 1


@pytest.mark.parametrize(
    ("content", "expected"), [({}, 1008), ({"password": "weak"}, 1009), ({"password": None}, 1009), ([], 1009)]
)
async def test_an_invalid_new_password_is_refused(api: Served, content: Any, expected: int) -> None:
    await make(api)
    response = await api.http.put(f"{USERS}/observer", json=content)
    assert code(response) == (400, expected)
    assert await can_log_in(api, "observer", PASSWORD)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_an_unknown_user_gets_404(api: Served, method: str) -> None:
    for name in ("nobody", "Admin", "admin%20", "%00", "x" * 500):
        response = await api.http.request(method, f"{USERS}/{name}", json={"password": PASSWORD})
        assert code(response) == (404, 1006), name


async def test_deleting_a_user_revokes_all_its_tokens(api: Served) -> None:
    first, second = await ordinary(api), await ordinary(api)
    assert await opens(api, first)
    response = await api.http.delete(f"{USERS}/observer")
    assert response.status_code == 200
    assert response.json() == {"users": [{"username": "observer"}], "meta": META}
    assert not await opens(api, first)
    assert not await opens(api, second)
    assert not await can_log_in(api, "observer", PASSWORD)
    assert code(await api.http.get(f"{USERS}/observer")) == (404, 1006)
    assert code(await api.http.delete(f"{USERS}/observer")) == (404, 1006)


async def test_recreating_a_deleted_user_does_not_revive_its_tokens(api: Served, serve: Serve) -> None:
    other = await serve()
    old = await ordinary(api)
    assert await opens(other, old)
    await api.http.delete(f"{USERS}/observer")
    new = await ordinary(api)
    for webapp in (api, other, await serve()):
        await webapp.parts.tokens.poll()
        assert not await opens(webapp, old)
        assert await opens(webapp, new)


async def test_another_webapp_applies_a_deletion_at_its_next_poll(api: Served, serve: Serve) -> None:
    """The other Webapp polls once a second."""
    other = await serve()
    await other.parts.tokens.poll()
    token = await ordinary(api)
    assert await opens(other, token)
    await api.http.delete(f"{USERS}/observer")
    assert await opens(other, token), "it still believes what it knew"
    assert await other.parts.tokens.poll() == 1
    assert not await opens(other, token)


async def test_a_restarted_webapp_still_refuses_the_tokens_of_a_deleted_user(api: Served, serve: Serve) -> None:
    token = await ordinary(api)
    await api.http.delete(f"{USERS}/observer")
    assert not await opens(await serve(), token)


async def test_the_built_in_administrator_cannot_be_deleted(api: Served) -> None:
    response = await api.http.delete(f"{USERS}/admin")
    assert code(response) == (403, 1005)
    assert "cannot be deleted" in errors(response)[0]["details"]
    assert await can_log_in(api, "admin", PASSWORD)


async def test_users_of_another_business_number_get_404(api: Served, serve: Serve, database: Database) -> None:
    await make(api)
    async with database.transaction() as connection:
        await connection.execute(
            users.table.update().where(users.table.c.username == "observer").values(account="15559999999")
        )
    assert code(await api.http.get(f"{USERS}/observer")) == (404, 1006)
    assert code(await api.http.delete(f"{USERS}/observer")) == (404, 1006)


async def test_the_revocation_of_a_deleted_user_is_kept_for_the_lifetime_of_its_tokens(
    api: Served, database: Database
) -> None:
    await ordinary(api)
    await api.http.delete(f"{USERS}/observer")
    async with database.reading() as connection:
        kept = (await tokens.list_revoked_since(connection, 0))[-1]
    assert kept.jti.startswith("user-")
    assert kept.expires_at - kept.revoked_at == 7 * 24 * 3600 * 1000
