"""Impossible names and ids in every path: 4xx in the API's format, on every database."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.webapp.conftest import Served, errors

STRANGE = ["ü", "\U0001f600" * 64, "\ud7ff\uffff", "\x7f", "'", "%", "a ", "x" * 300]


@pytest.fixture(params=["sqlite", "mariadb"])
def database_engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def paths(api: Served) -> list[tuple[str, str]]:
    """Return (method, template) of every operation without a body that has a name in its path."""
    found = []
    for template, methods in (await api.http.get("/openapi.json")).json()["paths"].items():
        if "{" in template:
            found += [(method.upper(), template) for method in methods if method in ("get", "head", "delete")]
    assert len(found) > 10
    return found


async def test_impossible_ids_get_4xx(api: Served, paths: list[tuple[str, str]]) -> None:
    for method, template in paths:
        for strange in STRANGE:
            parts = [quote(strange, safe="") if "{" in part else part for part in template.split("/")]
            response = await api.http.request(method, "/".join(parts))
            assert 400 <= response.status_code < 500, (method, template, strange, response.text)
            if method != "HEAD":
                assert errors(response)
