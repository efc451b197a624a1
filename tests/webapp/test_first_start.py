"""The first password: random where other machines reach the API, and valid only for a login until it is changed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tests.webapp.conftest import PASSWORD, Serve, Served, basic, code, errors
from tidings.config import env
from tidings.config.env import SettingsError
from tidings.secrets import first_password
from tidings.secrets.api_key import ApiKey
from tidings.secrets.first_password import FirstPassword
from webapp.auth import password_rule
from webapp.settings import Settings

ON_LOOPBACK, ELSEWHERE = FirstPassword("", True), FirstPassword("", False)
GIVEN = FirstPassword("Given-by-2-operators", False)
KEY = "a key of the tests"


async def login(api: Served, password: str, new: str | None = None) -> tuple[int, str]:
    """Return the status, and the token or an empty string."""
    body = {} if new is None else {"new_password": new}
    response = await api.http.post("/v1/users/login", headers=basic("admin", password), json=body)
    return response.status_code, response.json()["users"][0]["token"] if response.status_code == 200 else ""


async def test_beyond_loopback_the_first_password_is_random_and_generated_once(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "webapp")
    api = await serve(first_password=ELSEWHERE)
    assert api.first_password
    assert password_rule.weakness(api.first_password) is None
    assert len(api.first_password) > 20
    assert (await login(api, "secret"))[0] == 401
    assert (await login(api, api.first_password))[0] == 403
    again = await serve(first_password=ELSEWHERE)
    assert again.first_password is None
    assert (await login(again, api.first_password, PASSWORD))[0] == 200
    assert (await login(again, api.first_password))[0] == 401
    assert api.first_password not in caplog.text


async def test_one_of_several_starting_webapps_generates_the_password(serve: Serve) -> None:
    webapps = await asyncio.gather(*(serve(first_password=ELSEWHERE) for _ in range(4)))
    [made] = [api.first_password for api in webapps if api.first_password]
    for api in webapps:
        assert (await login(api, made))[0] == 403


async def test_the_default_password_is_replaced_at_a_start_beyond_loopback(serve: Serve) -> None:
    local = await serve(first_password=ON_LOOPBACK)
    assert local.first_password is None
    assert (await login(local, "secret"))[0] == 403
    api = await serve(first_password=ELSEWHERE)
    assert api.first_password
    assert (await login(api, "secret"))[0] == 401
    assert (await login(api, api.first_password))[0] == 403


async def test_a_password_from_the_environment_is_valid_until_it_is_changed(serve: Serve) -> None:
    lost = await serve(first_password=ELSEWHERE)
    api = await serve(first_password=GIVEN)
    assert api.first_password is None
    assert lost.first_password
    assert (await login(api, lost.first_password))[0] == 401
    assert (await login(api, GIVEN.given))[0] == 403
    assert (await login(api, GIVEN.given, PASSWORD))[0] == 200
    later = await serve(first_password=GIVEN)
    assert (await login(later, GIVEN.given))[0] == 401
    assert (await login(later, PASSWORD))[0] == 200


async def test_the_first_password_cannot_be_its_own_replacement(serve: Serve) -> None:
    api = await serve(first_password=GIVEN)
    response = await api.http.post(
        "/v1/users/login", headers=basic("admin", GIVEN.given), json={"new_password": GIVEN.given}
    )
    assert code(response) == (400, 1009)
    assert errors(response)[0]["details"].startswith("new_password: ")
    assert (await login(api, GIVEN.given))[0] == 403
    assert (await login(api, GIVEN.given, PASSWORD))[0] == 200


async def test_only_a_login_is_allowed_until_the_first_password_is_changed(serve: Serve) -> None:
    first = await serve(first_password=ELSEWHERE, api_key=ApiKey(KEY))
    other = await serve(first_password=ELSEWHERE, api_key=ApiKey(KEY))
    assert first.first_password
    by_key = {"Authorization": f"Apikey {KEY}"}
    for path in ("/v1/health", "/metrics", "/docs", "/openapi.json", "/", "/v1/users", "/nowhere"):
        assert code(await first.http.get(path, headers=by_key)) == (403, 1024), path
        assert code(await first.http.get(path, headers={"Authorization": "Bearer x"})) == (401, 1005), path
    _, token = await login(first, first.first_password, PASSWORD)
    for api in (first, other):
        response = await api.http.get("/v1/users", headers={"Authorization": f"Bearer {token}"})
        assert response.status_code == 200, "a token shows that it was changed"
        await api.parts.logins.first_start.run_once()
        assert (await api.http.get("/v1/health", headers=by_key)).status_code == 200
    assert not (await serve(first_password=ELSEWHERE)).parts.logins.first_start.is_pending


async def test_on_loopback_other_endpoints_work_before_the_password_change(serve: Serve) -> None:
    api = await serve(first_password=ON_LOOPBACK)
    assert (await api.http.get("/metrics")).status_code == 200


def read(tmp_path: Path, **variables: str) -> Settings:
    return Settings.read({"TIDINGS_DATA_DIR": str(tmp_path), **variables})


def test_the_first_password_from_environment_or_file_is_never_printed(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    for name, value in ((first_password.VARIABLE, PASSWORD), (f"{first_password.VARIABLE}_FILE", str(file))):
        found = read(tmp_path, **{name: value})
        assert found.first_password == FirstPassword(PASSWORD, True)
        assert PASSWORD not in repr(found) + str(env.printable(found))
    assert read(tmp_path, TIDINGS_API_ADDRESS="0.0.0.0:9090").first_password == ELSEWHERE


@pytest.mark.parametrize(
    "variables",
    [
        {"TIDINGS_ADMIN_PASSWORD": "secret"},
        {"TIDINGS_ADMIN_PASSWORD_FILE": "/nowhere"},
        {"TIDINGS_ADMIN_PASSWORD": PASSWORD, "TIDINGS_ADMIN_PASSWORD_FILE": "/nowhere"},
    ],
)
def test_an_invalid_first_password_stops_the_start(tmp_path: Path, variables: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="TIDINGS_ADMIN_PASSWORD") as caught:
        read(tmp_path, **variables)
    assert PASSWORD not in str(caught.value)
