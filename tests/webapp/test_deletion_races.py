"""Tokens, users and files that are deleted during use: a concurrent request gets all or nothing, a later one none."""

from __future__ import annotations

import asyncio
import collections
import os

import httpx
import pytest

from tests.media_samples import PNG
from tests.webapp.conftest import PASSWORD, Serve, Served, basic, body

LOGIN, LOGOUT, SETTINGS, MEDIA = "/v1/users/login", "/v1/users/logout", "/v1/settings/application", "/v1/media"
USER = {"username": "racer", "password": "Racing-2026!"}


@pytest.fixture(params=["sqlite", "mariadb"])
def database_engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def log_in(api: Served, name: str = "admin", password: str = PASSWORD) -> str:
    response = await api.http.post(LOGIN, headers=basic(name, password))
    assert response.status_code == 200, response.text
    return str(response.json()["users"][0]["token"])


async def use(api: Served, token: str) -> int:
    """Send a request that also queries the database. Returns its status."""
    return (await api.http.get("/v1/users/racer", headers=bearer(token))).status_code


async def upload(api: Served, content: bytes = PNG, kind: str = "image/png") -> str:
    response = await api.http.post(MEDIA, content=content, headers={"Content-Type": kind})
    assert response.status_code == 200, response.text
    return str(response.json()["media"][0]["id"])


async def test_a_token_is_void_after_the_first_response_to_concurrent_logouts(api: Served, serve: Serve) -> None:
    await api.http.post("/v1/users", json=USER)
    other = await serve()
    for _ in range(2):
        token = await log_in(api)
        assert (await use(api, token), await use(other, token)) == (200, 200)
        void: list[int] = []

        async def log_out(token: str = token, void: list[int] = void) -> int:
            response = await api.http.post(LOGOUT, headers=bearer(token))
            # The token is void even before the other 49 requests have a response.
            void.append(await use(api, token))
            return response.status_code

        uses = [asyncio.create_task(use(api, token)) for _ in range(50)]
        statuses = await asyncio.gather(*[log_out() for _ in range(50)])
        assert 200 in statuses
        assert set(statuses) <= {200, 401}
        assert set(void) == {401}
        assert set(await asyncio.gather(*uses)) <= {200, 401}
        await other.parts.common.changes.run_once()
        assert await use(other, token) == 401


async def test_no_token_outlives_the_deletion_of_its_user(api: Served, serve: Serve) -> None:
    other = await serve()
    for _ in range(3):
        assert (await api.http.post("/v1/users", json=USER)).status_code == 201
        issued: list[str] = []

        async def logging_in(server: Served, issued: list[str] = issued) -> None:
            response = await server.http.post(LOGIN, headers=basic(USER["username"], USER["password"]))
            assert response.status_code in (200, 401), response.text
            if response.status_code == 200:
                issued.append(response.json()["users"][0]["token"])

        await logging_in(api)
        logins = [asyncio.create_task(logging_in(server)) for server in (api, other) for _ in range(10)]
        deletions = await asyncio.gather(*[api.http.delete(f"/v1/users/{USER['username']}") for _ in range(10)])
        await asyncio.gather(*logins)
        counted = collections.Counter(response.status_code for response in deletions)
        assert counted == {200: 1, 404: 9}
        assert issued
        await other.parts.common.changes.run_once()
        for server in (api, other):
            assert {await use(server, token) for token in issued} == {401}
    # A new user of the same name is a different user.
    assert (await api.http.post("/v1/users", json=USER)).status_code == 201
    assert {await use(api, token) for token in issued} == {401}


async def test_a_file_is_deleted_once_and_concurrent_reads_get_all_or_nothing(served_api: Served) -> None:
    api = served_api
    content = b"%PDF-1.4\n" + os.urandom(3 * 2**20)
    before = set(os.listdir(api.settings.media_dir))
    for _ in range(3):
        media_id = await upload(api, content, "application/pdf")

        async def read(media_id: str = media_id) -> httpx.Response:
            return await api.http.get(f"{MEDIA}/{media_id}")

        reads = [asyncio.create_task(read()) for _ in range(8)]
        assert (await read()).content == content
        reads += [asyncio.create_task(read()) for _ in range(8)]
        deletions = await asyncio.gather(*[api.http.delete(f"{MEDIA}/{media_id}") for _ in range(10)])
        assert (await read()).status_code == 404
        assert collections.Counter(response.status_code for response in deletions) == {200: 1, 404: 9}
        for response in await asyncio.gather(*reads):
            assert response.status_code == 404 or (response.status_code, response.content) == (200, content)
    assert set(os.listdir(api.settings.media_dir)) == before


async def test_messages_with_a_file_being_deleted_are_accepted_or_refused(api: Served) -> None:
    for _ in range(3):
        media_id = await upload(api)
        message = body("message_text") | {"type": "image", "image": {"id": media_id}}
        message.pop("text", None)
        sends = [asyncio.create_task(api.http.post("/v1/messages", json=message)) for _ in range(10)]
        deleted = await api.http.delete(f"{MEDIA}/{media_id}")
        assert deleted.status_code == 200
        statuses = {response.status_code for response in await asyncio.gather(*sends)}
        assert statuses <= {201, 404}
        assert (await api.http.post("/v1/messages", json=message)).status_code == 404


async def test_a_second_upload_of_a_file_survives_the_deletion_of_the_first(api: Served) -> None:
    for _ in range(5):
        first = await upload(api)
        deletion, second = await asyncio.gather(api.http.delete(f"{MEDIA}/{first}"), upload(api))
        assert deletion.status_code == 200
        response = await api.http.get(f"{MEDIA}/{second}")
        assert (response.status_code, response.content) == (200, PNG)
