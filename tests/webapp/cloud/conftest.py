"""Webapp that serves the Cloud API, and checks of the format of its responses."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.webapp.conftest import Serve, Served
from tests.webapp.fake_coreapp import FakeCoreapp

# Ids that 15550000000 has in every installation.
NUMBER = "1393060602093303"
WABA = "2397639735729717"
APP = "3711468565284653"
DATA = Path(__file__).parents[2] / "data" / "cloud"
TRACE = re.compile(rb"A[A-Za-z0-9_-]{20}")


def recorded(name: str) -> Any:
    """Return a JSON file of recorded responses."""
    return json.loads((DATA / f"{name}.json").read_text())


@dataclasses.dataclass
class Cloud:
    """Client of the Cloud API, with the token of an administrator."""

    served: Served
    http: httpx.AsyncClient

    async def send(self, **fields: Any) -> httpx.Response:
        """Send a text, with some fields changed. Fields that are `...` are left out."""
        message = {
            "messaging_product": "whatsapp",
            "to": "15550110001",
            "type": "text",
            "text": {"body": "Hello"},
            **fields,
        }
        return await self.http.post(
            f"/v25.0/{NUMBER}/messages", json={name: value for name, value in message.items() if value is not ...}
        )


@pytest.fixture
async def cloud(serve: Serve, coreapp: FakeCoreapp) -> Cloud:
    served = await serve(cloud_api=True)
    await served.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    return Cloud(served, served.http)


def untraced(response: httpx.Response) -> bytes:
    """Return the body with the request's id replaced, after checking that the headers carry the same id."""
    trace = response.headers["x-fb-request-id"].encode()
    assert TRACE.fullmatch(trace)
    return response.content.replace(trace, b"TRACE")


def check_headers(response: httpx.Response, version: str = "v25.0") -> None:
    """Check the headers that every response of the Cloud API has."""
    assert response.headers["content-type"] == "application/json; charset=UTF-8"
    assert response.headers["facebook-api-version"] == version
    assert TRACE.fullmatch(response.headers["x-fb-request-id"].encode())
    assert response.headers["x-fb-trace-id"]
    assert response.headers["x-fb-rev"].isdigit()
    assert response.headers["x-request-id"]
    if response.status_code < 400:
        assert response.headers.get_list("cache-control") == ["private, no-cache, no-store, must-revalidate"]
        [(waba, [usage])] = json.loads(response.headers["x-business-use-case-usage"]).items()
        assert waba == WABA
        assert set(usage) == {
            "type",
            "call_count",
            "total_cputime",
            "total_time",
            "estimated_time_to_regain_access",
        }
    else:
        assert response.headers.get_list("cache-control") == ["no-store"]
        assert set(json.loads(response.headers["x-app-usage"])) == {"call_count", "total_cputime", "total_time"}


def error(response: httpx.Response) -> tuple[int, int, str]:
    """Return HTTP status, code and message of an error, after checking its format."""
    check_headers(response, response.headers["facebook-api-version"])
    assert response.status_code >= 400
    assert set(response.json()) == {"error"}
    found = response.json()["error"]
    assert list(found)[:3] == ["message", "type", "code"]
    assert list(found)[-1] == "fbtrace_id"
    assert found["fbtrace_id"] == response.headers["x-fb-request-id"]
    return response.status_code, found["code"], found["message"]


def details(response: httpx.Response) -> str:
    """Return `error_data.details` of an error."""
    found = response.json()["error"]["error_data"]
    assert found["messaging_product"] == "whatsapp"
    return str(found["details"])


async def page_and_delete(
    cloud: Cloud, path: str, name: str, delete: Callable[[str], Awaitable[httpx.Response]]
) -> list[str]:
    """Read a list in pages of two, and delete the entries of each page before the next one is read.

    Returns the entries' values of the field `name`, which `delete` gets.
    """
    seen: list[str] = []
    url = f"{path}?limit=2"
    while url:
        page = (await cloud.http.get(url)).json()
        for entry in page["data"]:
            seen.append(entry[name])
            assert (await delete(entry[name])).is_success
        url = page.get("paging", {}).get("next", "")
    return seen
