"""`GET` and `POST /v1/settings/business/compliance_info`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.conftest import Served, body, check_headers, code, errors
from tests.webapp.roles import check_is_for_administrators

PATH = "/v1/settings/business/compliance_info"
CASES = body("compliance")


async def told(api: Served) -> Any:
    response = await api.http.get(PATH)
    assert response.status_code == 200
    check_headers(response)
    return response.json()["settings"]["business"]["compliance_info"]


async def test_posted_compliance_info_is_returned_and_replaced_by_the_next(api: Served) -> None:
    assert await told(api) == CASES["none_told"]
    for posted, expected in (("full", "full"), ("least", "least_told")):
        response = await api.http.post(PATH, json=CASES[posted])
        assert (response.status_code, set(response.json())) == (200, {"meta"})
        assert await told(api) == CASES[expected]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in CASES["wrong"]])
async def test_an_invalid_field_is_named_and_changes_nothing(api: Served, case: dict[str, Any]) -> None:
    await api.http.post(PATH, json=CASES["least"])
    response = await api.http.post(PATH, json=CASES["full"] | case["change"])
    assert code(response) == (400, case["code"])
    assert errors(response)[0]["details"].startswith(case["details"])
    assert await told(api) == CASES["least_told"]


async def test_compliance_info_requires_an_administrator(api: Served) -> None:
    await check_is_for_administrators(api, "GET", PATH)
    await check_is_for_administrators(api, "POST", PATH, json=CASES["full"])


async def test_a_backup_contains_the_compliance_info(api: Served) -> None:
    await api.http.post(PATH, json=CASES["full"])
    response = await api.http.post("/v1/settings/backup", json={"password": "Tidings-2026!"})
    data = response.json()["settings"]["data"]
    await api.http.post(PATH, json=CASES["least"])
    response = await api.http.post("/v1/settings/restore", json={"password": "Tidings-2026!", "data": data})
    assert response.status_code == 200, response.text
    assert await told(api) == CASES["full"]
