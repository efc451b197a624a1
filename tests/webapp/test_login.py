"""`POST /v1/users/login` and `/v1/users/logout`."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime
from typing import Any

import argon2
import jwt
import pytest

from tests.manual_clock import ManualClock
from tests.webapp.conftest import PASSWORD, Serve, Served, basic, check_headers, code, errors
from tidings.storage.business import users
from tidings.storage.business.tokens import Revocation
from tidings.storage.database import Database
from webapp.auth.tokens import Tokens

LOGIN, LOGOUT, HEALTH = "/v1/users/login", "/v1/users/logout", "/v1/health"


@pytest.fixture
async def fresh(serve: Serve) -> Served:
    """Webapp at its first start."""
    return await serve()


async def login(api: Served, user: str, password: str, body: Any = None) -> Any:
    return await api.http.post(LOGIN, headers=basic(user, password), **({} if body is None else {"json": body}))


async def works(api: Served, token: str) -> bool:
    response = await api.http.get(HEALTH, headers={"Authorization": f"Bearer {token}"})
    assert response.status_code in (200, 401)
    return bool(response.status_code == 200)


def token(response: Any) -> str:
    assert response.status_code == 200, response.text
    [user] = response.json()["users"]
    return str(user["token"])


async def test_the_default_password_must_be_changed_at_the_first_login(fresh: Served) -> None:
    for body in (None, {}, {"new_password": None}, {"new_password": ""}):
        response = await login(fresh, "admin", "secret", body)
        assert code(response) == (403, 1024)
        assert errors(response)[0]["title"] == "Password change required"
    response = await login(fresh, "admin", "secret", {"new_password": PASSWORD})
    assert await works(fresh, token(response))
    assert code(await login(fresh, "admin", "secret")) == (401, 1005)
    assert await works(fresh, token(await login(fresh, "admin", PASSWORD)))


@pytest.mark.parametrize("nothing", [b"", b"{}", b"[]", b"null", b'""', b' {"username": "admin", "password": "x"}\n'])
async def test_empty_body_forms_are_accepted_at_login(fresh: Served, nothing: bytes) -> None:
    token(await login(fresh, "admin", "secret", {"new_password": PASSWORD}))
    headers = basic("admin", PASSWORD) | {"Content-Type": "application/json"}
    assert await works(fresh, token(await fresh.http.post(LOGIN, content=nothing, headers=headers)))


@pytest.mark.parametrize("something", [b"[1]", b'"x"', b"0", b"false"])
async def test_a_login_body_that_is_not_an_object_is_refused(fresh: Served, something: bytes) -> None:
    token(await login(fresh, "admin", "secret", {"new_password": PASSWORD}))
    assert code(await fresh.http.post(LOGIN, content=something, headers=basic("admin", PASSWORD))) == (400, 1009)


async def test_the_default_password_is_refused_as_a_new_password(fresh: Served) -> None:
    assert code(await login(fresh, "admin", "secret", {"new_password": "secret"})) == (400, 1009)
    assert code(await login(fresh, "admin", "secret")) == (403, 1024)


async def test_a_login_returns_one_token_in_the_documented_form(fresh: Served) -> None:
    before = datetime.datetime.now(datetime.UTC)
    response = await login(fresh, "admin", "secret", {"new_password": PASSWORD})
    check_headers(response)
    payload = response.json()
    assert set(payload) == {"users", "meta"}
    assert payload["meta"] == {"version": "v2.57.2", "api_status": "stable"}
    [user] = payload["users"]
    assert set(user) == {"token", "expires_after"}
    expires = datetime.datetime.strptime(user["expires_after"], "%Y-%m-%d %H:%M:%S%z")
    assert user["expires_after"].endswith("+00:00")
    assert abs(expires - before - datetime.timedelta(days=7)) < datetime.timedelta(minutes=1)
    claims = jwt.decode(user["token"], "j" * 32, ["HS256"])
    assert claims["user"] == "admin"
    assert claims["account"] == "15550000000"
    assert claims["exp"] == expires.timestamp()
    assert claims["exp"] - claims["iat"] == 7 * 24 * 3600
    assert claims["jti"]


@pytest.mark.parametrize(
    ("password", "reason"),
    [
        ("Short-1", "8 to 64 characters"),
        ("Long-1" + "x" * 59, "8 to 64 characters"),
        ("no-upper-1", "upper-case"),
        ("NO-LOWER-1", "lower-case"),
        ("No-Digits-", "digit"),
        ("NoPunctuation1", "punctuation"),
    ],
)
async def test_a_weak_new_password_is_refused_with_the_reason(fresh: Served, password: str, reason: str) -> None:
    response = await login(fresh, "admin", "secret", {"new_password": password})
    assert code(response) == (400, 1009)
    assert errors(response)[0]["details"].startswith("new_password: ")
    assert reason in errors(response)[0]["details"]
    assert code(await login(fresh, "admin", "secret")) == (403, 1024)


@pytest.mark.parametrize("password", ["Exact-8!", "L0ng-" + "x" * 59, 'Punct1"Quote', "Üml4ut-ok"])
async def test_a_strong_new_password_is_accepted(fresh: Served, password: str) -> None:
    token(await login(fresh, "admin", "secret", {"new_password": password}))
    token(await login(fresh, "admin", password))


async def test_a_new_password_that_is_not_a_string_is_refused(fresh: Served) -> None:
    assert code(await login(fresh, "admin", "secret", {"new_password": 5})) == (400, 1009)
    assert code(await fresh.http.post(LOGIN, headers=basic("admin", "secret"), content=b"{")) == (400, 1025)


async def test_a_password_change_revokes_earlier_tokens(api: Served) -> None:
    old = token(await login(api, "admin", PASSWORD))
    new = token(await login(api, "admin", PASSWORD, {"new_password": "Another-2026!"}))
    assert not await works(api, old)
    assert await works(api, new)
    assert code(await login(api, "admin", PASSWORD)) == (401, 1005)
    token(await login(api, "admin", "Another-2026!"))


@pytest.mark.parametrize("at_once", [2, 8])
async def test_a_new_password_equal_to_the_current_one_changes_nothing(api: Served, at_once: int) -> None:
    earlier = token(await login(api, "admin", PASSWORD))
    tokens: list[str] = []
    for _ in range(40 // at_once):
        logins = (login(api, "admin", PASSWORD, {"new_password": PASSWORD}) for _ in range(at_once))
        tokens += [token(response) for response in await asyncio.gather(*logins)]
    assert all([await works(api, one) for one in (earlier, *tokens)])
    token(await login(api, "admin", PASSWORD))


async def test_a_weak_current_password_given_as_the_new_one_changes_nothing(api: Served, database: Database) -> None:
    weak = "short"
    async with database.transaction() as connection:
        user = await users.find_user(connection, "admin")
        assert user is not None
        weaker = dataclasses.replace(user, password_hash=argon2.PasswordHasher(1, 8, 1).hash(weak))
        assert await users.replace(connection, user, weaker)
    token(await login(api, "admin", weak, {"new_password": weak}))


async def test_a_wrong_password_is_refused_even_with_the_current_one_as_new_password(api: Served) -> None:
    assert code(await login(api, "admin", "Wrong-2026!", {"new_password": PASSWORD})) == (401, 1005)


async def test_one_of_two_concurrent_first_logins_sets_the_password(fresh: Served) -> None:
    passwords = ["First-2026!", "Second-2026!"]
    responses = await asyncio.gather(*(login(fresh, "admin", "secret", {"new_password": p}) for p in passwords))
    assert sorted(response.status_code for response in responses) == [200, 401]
    [winner] = [p for p, response in zip(passwords, responses, strict=True) if response.status_code == 200]
    token(await login(fresh, "admin", winner))


@pytest.mark.parametrize(
    ("user", "password"), [("admin", "wrong"), ("nobody", PASSWORD), ("admin ", PASSWORD), ("ADMIN", PASSWORD)]
)
async def test_an_unknown_user_and_a_wrong_password_get_the_same_response(
    api: Served, user: str, password: str
) -> None:
    response = await login(api, user, password)
    assert code(response) == (401, 1005)
    assert errors(response)[0]["details"] == "wrong user name or password"
    assert response.headers["WWW-Authenticate"].startswith("Basic")


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic YWRtaW4=",
        "Basic OnNlY3JldA==",
        "Basic /w==",
        "Bearer x",
        "Basic " + "QUFB" * 1000,
    ],
)
async def test_a_login_without_usable_credentials_gets_401(api: Served, header: str | None) -> None:
    del api.http.headers["Authorization"]
    response = await api.http.post(LOGIN, headers={} if header is None else {"Authorization": header})
    assert code(response) == (401, 1005)


async def test_concurrent_logins_keep_earlier_tokens_valid(api: Served) -> None:
    responses = await asyncio.gather(*(login(api, "admin", PASSWORD) for _ in range(20)))
    tokens = {token(response) for response in responses}
    assert len(tokens) == 20
    assert all([await works(api, each) for each in tokens])


async def test_a_logout_revokes_only_its_own_token_at_once(api: Served) -> None:
    kept, ended = token(await login(api, "admin", PASSWORD)), token(await login(api, "admin", PASSWORD))
    response = await api.http.post(LOGOUT, headers={"Authorization": f"Bearer {ended}"})
    assert response.status_code == 200
    assert response.json() == {"meta": {"version": "2.57.2", "api_status": "stable"}}
    assert not await works(api, ended)
    assert await works(api, kept)
    assert code(await api.http.post(LOGOUT, headers={"Authorization": f"Bearer {ended}"})) == (401, 1005)


async def test_another_webapp_applies_a_logout_within_one_poll(api: Served, serve: Serve) -> None:
    other = await serve()
    ended = token(await login(api, "admin", PASSWORD))
    assert await works(other, ended)
    await api.http.post(LOGOUT, headers={"Authorization": f"Bearer {ended}"})
    await other.parts.common.changes.run_once()
    assert not await works(other, ended)


async def test_a_token_revoked_at_another_webapp_before_first_use_is_refused(api: Served, serve: Serve) -> None:
    ended = token(await login(api, "admin", PASSWORD))
    await api.http.post(LOGOUT, headers={"Authorization": f"Bearer {ended}"})
    assert not await works(await serve(), ended)


async def test_a_token_expires_after_seven_days(serve: Serve) -> None:
    clock = ManualClock()
    api = await serve(clock=clock)
    issued = token(await login(api, "admin", "secret", {"new_password": PASSWORD}))
    clock.advance(7 * 24 * 3600 - 1)
    assert await works(api, issued)
    clock.advance(1)
    response = await api.http.get(HEALTH, headers={"Authorization": f"Bearer {issued}"})
    assert code(response) == (401, 1005)
    assert errors(response)[0]["details"] == "the token has expired"


async def test_the_token_of_a_deleted_user_is_refused(api: Served, serve: Serve, database: Database) -> None:
    issued = token(await login(api, "admin", PASSWORD))
    clock = ManualClock(datetime.datetime.now(datetime.UTC).timestamp())
    other = await serve(clock=clock)
    assert await works(other, issued)
    async with database.transaction() as connection:
        await connection.execute(users.table.delete())
    clock.advance(301)
    assert not await works(other, issued)


async def test_an_idle_token_is_recognised_without_the_database_until_it_expires_or_is_revoked(
    database: Database,
) -> None:
    clock = ManualClock()
    tokens = Tokens(database, "k" * 32, clock)
    user = users.User("admin", "15550000000", users.ADMIN, "hash", False, 0)
    issued, ended = (tokens.issue(user)[0].encode() for _ in range(2))
    clock.advance(301)
    assert tokens.find(issued) is None
    assert tokens.recognises(issued)
    assert not tokens.recognises(b"another")
    tokens.learn(Revocation(jwt.decode(ended, options={"verify_signature": False})["jti"], 0, 0))
    assert not tokens.recognises(ended)
    clock.advance(7 * 24 * 3600)
    assert not tokens.recognises(issued)


async def test_a_forged_token_is_refused(api: Served) -> None:
    claims = {"user": "admin", "exp": 2**40, "jti": "x", "account": "15550000000"}
    assert not await works(api, jwt.encode(claims, "k" * 32, "HS256"))
    assert not await works(api, jwt.encode(claims, "", "none"))
    assert not await works(api, jwt.encode(claims, "j" * 64, "HS512"))
    assert not await works(api, jwt.encode({"user": "admin"}, "j" * 32, "HS256"))


async def test_a_password_changed_at_another_webapp_is_refused_within_a_second(serve: Serve) -> None:
    clock = ManualClock()
    one, other = await serve(clock=clock), await serve(clock=clock)
    token(await login(one, "admin", "secret", {"new_password": PASSWORD}))
    token(await login(other, "admin", PASSWORD))
    token(await login(one, "admin", PASSWORD, {"new_password": "Another-2026!"}))
    clock.advance(1.1)
    assert code(await login(other, "admin", PASSWORD)) == (401, 1005)
    token(await login(other, "admin", "Another-2026!"))


async def test_a_password_in_latin_1_is_accepted(fresh: Served) -> None:
    token(await login(fresh, "admin", "secret", {"new_password": "Üml4ut-ok"}))
    encoded = base64.b64encode("admin:Üml4ut-ok".encode("latin-1")).decode()
    token(await fresh.http.post(LOGIN, headers={"Authorization": f"Basic {encoded}"}))


async def test_users_and_passwords_survive_a_restart(api: Served, serve: Serve) -> None:
    again = await serve()
    assert code(await login(again, "admin", "secret")) == (401, 1005)
    token(await login(again, "admin", PASSWORD))


async def test_a_login_body_is_read_only_after_a_correct_password_and_if_small(api: Served) -> None:
    for password, status in (("wrong", 401), (PASSWORD, 400)):
        response = await api.http.post("/v1/users/login", headers=basic("admin", password), content=b"{nonsense")
        assert response.status_code == status
    large = b'{"new_password": "' + b"x" * 5_000 + b'"}'
    assert code(await api.http.post("/v1/users/login", headers=basic("admin", PASSWORD), content=large)) == (413, 1025)
