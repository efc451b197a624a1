"""The three kinds of caller, and checks that an endpoint distinguishes them."""

from __future__ import annotations

from typing import Any

from tests.webapp.conftest import PASSWORD, Served, basic, code

ORDINARY = "observer"


async def ordinary(api: Served, name: str = ORDINARY) -> dict[str, str]:
    """Return the header of an ordinary user, who is created if no user has that name yet."""
    made = await api.http.post("/v1/users", json={"username": name, "password": PASSWORD})
    assert made.status_code in (201, 500), made.text
    response = await api.http.post("/v1/users/login", headers=basic(name, PASSWORD))
    assert response.status_code == 200, response.text
    return {"Authorization": "Bearer " + response.json()["users"][0]["token"]}


async def check_is_for_administrators(api: Served, method: str, path: str, **body: Any) -> None:
    """Check that neither an unauthenticated client nor an ordinary user is admitted."""
    assert code(await api.http.request(method, path, headers=await ordinary(api), **body)) == (403, 1005)
    await check_takes_a_token(api, method, path, **body)


async def check_takes_a_token(api: Served, method: str, path: str, **body: Any) -> None:
    """Check that an unauthenticated client is not admitted."""
    for header in ("", "Bearer x", "Apikey x", "Basic eDp4"):
        response = await api.http.request(method, path, headers={"Authorization": header}, **body)
        assert code(response) == (401, 1005), (method, path)
