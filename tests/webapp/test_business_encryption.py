"""`GET` and `POST /v1/settings/business/whatsapp_business_encryption`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.conftest import Served, body, check_headers, code, errors
from tests.webapp.roles import check_is_for_administrators

PATH = "/v1/settings/business/whatsapp_business_encryption"
GOOD = body("business_encryption")


@pytest.mark.parametrize("form", ["public_key", "pkcs1"])
async def test_a_posted_key_is_returned_in_one_form(api: Served, form: str) -> None:
    assert code(await api.http.get(PATH)) == (404, 1006)
    response = await api.http.post(PATH, json=GOOD[form])
    assert response.status_code == 200
    assert set(response.json()) == {"meta"}
    response = await api.http.get(PATH)
    assert response.status_code == 200
    assert response.json() == GOOD["response"]
    check_headers(response)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in body("business_encryption_wrong")])
async def test_an_invalid_key_is_refused_and_changes_nothing(api: Served, case: dict[str, Any]) -> None:
    await api.http.post(PATH, json=GOOD["public_key"])
    response = await api.http.post(PATH, json=case["body"])
    assert code(response) == (case["status"], case["code"])
    assert errors(response)[0]["details"].startswith(case["details"])
    assert (await api.http.get(PATH)).json() == GOOD["response"]


async def test_the_key_requires_an_administrator(api: Served) -> None:
    await check_is_for_administrators(api, "GET", PATH)
    await check_is_for_administrators(api, "POST", PATH, json=GOOD["public_key"])


async def test_a_backup_contains_the_key(api: Served) -> None:
    await api.http.post(PATH, json=GOOD["public_key"])
    response = await api.http.post("/v1/settings/backup", json={"password": "Tidings-2026!"})
    data = response.json()["settings"]["data"]
    await api.http.post(PATH, json=GOOD["another"])
    assert (await api.http.get(PATH)).json() != GOOD["response"]
    response = await api.http.post("/v1/settings/restore", json={"password": "Tidings-2026!", "data": data})
    assert response.status_code == 200, response.text
    assert (await api.http.get(PATH)).json() == GOOD["response"]
