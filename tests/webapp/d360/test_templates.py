"""`/v1/configs/templates` with a key: 360dialog's pages, creation and deletion."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.webapp.conftest import Served
from tests.webapp.d360.test_keys import key_of, keyed
from tidings.storage.database import Database

PATH = "/v1/configs/templates"
BODY = [{"type": "BODY", "text": "Hello"}]


def template(name: str, **fields: object) -> dict[str, object]:
    return {"name": name, "language": "en_US", "category": "UTILITY", "components": BODY, **fields}


async def test_templates_are_created_listed_in_pages_and_deleted(api: Served, database: Database) -> None:
    client = keyed(api, await key_of(api, database))
    assert (await client.get(PATH)).json() == {
        "waba_templates": [],
        "count": 0,
        "total": 0,
        "filters": {},
        "limit": 1000,
        "offset": 0,
        "sort": [],
    }
    for name in ("first", "second", "third"):
        made = await client.post(PATH, json=template(name, status="approved"))
        assert made.status_code == 201, made.text
        assert (made.json()["name"], made.json()["status"]) == (name, "submitted")
    page = (await client.get(PATH, params={"limit": 1, "offset": 1})).json()
    assert {name: page[name] for name in ("count", "total", "limit", "offset")} == {
        "count": 1,
        "total": 3,
        "limit": 1,
        "offset": 1,
    }
    [shown] = page["waba_templates"]
    assert shown["id"].isdigit()
    assert isinstance(shown["created_at"], int)
    assert shown["namespace"]
    assert {
        name: shown[name] for name in ("name", "language", "status", "category", "components", "rejected_reason")
    } == {
        "name": "second",
        "language": "en_US",
        "status": "approved",
        "category": "UTILITY",
        "components": BODY,
        "rejected_reason": "NONE",
    }
    gone = await client.delete(f"{PATH}/second")
    assert (gone.status_code, gone.json()) == (200, {"meta": {"http_code": 200, "success": True}})
    assert (await client.get(PATH)).json()["total"] == 2
    # Without the key the same path responds as before.
    assert set((await api.http.get(PATH)).json()) == {"templates", "meta"}


@pytest.mark.parametrize(
    ("query", "words"),
    [("limit=x", "limit: should be a whole number"), ("offset=-1", "offset: should be a whole number")],
)
async def test_a_wrong_page_is_explained(api: Served, database: Database, query: str, words: str) -> None:
    response = await keyed(api, await key_of(api, database)).get(f"{PATH}?{query}")
    assert response.status_code == 400
    assert response.json() == {"meta": {"http_code": 400, "developer_message": words, "success": False}}


async def test_wrong_templates_are_explained(api: Served, database: Database) -> None:
    client = keyed(api, await key_of(api, database))
    wrong: list[object] = [template("Wrong"), template("x", components=[]), [], 5]
    for value in wrong:
        response = await client.post(PATH, json=value)
        assert (response.status_code, response.json()["meta"]["success"]) == (400, False)
    assert (await client.post(PATH, json=template("x"))).status_code == 201
    assert (await client.post(PATH, json=template("x"))).status_code >= 400
    missing = await client.delete(f"{PATH}/nothing")
    assert (missing.status_code, missing.json()["meta"]["http_code"]) == (404, 404)


async def names(client: httpx.AsyncClient, **query: str) -> list[tuple[str, str]]:
    """Return name and language of the listed templates."""
    response = await client.get(PATH, params=query)
    assert response.status_code == 200, response.text
    return [(one["name"], one["language"]) for one in response.json()["waba_templates"]]


async def test_templates_are_filtered_and_sorted_before_the_page_is_cut(api: Served, database: Database) -> None:
    client = keyed(api, await key_of(api, database))
    for name, language, category in (("b", "de", "UTILITY"), ("a", "en", "MARKETING"), ("b", "en", "UTILITY")):
        made = await client.post(PATH, json=template(name, language=language, category=category))
        assert made.status_code == 201, made.text
    assert await names(client, sort="-name,language") == [("b", "de"), ("b", "en"), ("a", "en")]
    assert await names(client, sort='["language","-name"]') == [("b", "de"), ("b", "en"), ("a", "en")]
    assert await names(client, filters='{"category":"utility"}', sort="-language") == [("b", "en"), ("b", "de")]
    assert await names(client, filters='{"business_templates.name":["a","c"],"status":"approved"}') == [("a", "en")]
    assert await names(client, filters='{"status":"rejected"}') == []
    query = {"filters": '{"name":"b"}', "sort": "-business_templates.language", "limit": "1", "offset": "1"}
    page = (await client.get(PATH, params=query)).json()
    assert [one["language"] for one in page["waba_templates"]] == ["de"]
    assert {name: page[name] for name in ("count", "total", "filters", "sort")} == {
        "count": 1,
        "total": 2,
        "filters": {"name": "b"},
        "sort": ["-language"],
    }


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"filters": "status"}, "filters: should be a JSON object"),
        ({"filters": "[]"}, "filters: should be a JSON object"),
        ({"filters": '{"status":{"not":"approved"}}'}, "filters: should be a JSON object"),
        ({"filters": '{"colour":"red"}'}, "filters: should name fields among id, name"),
        ({"filters": json.dumps({"name": ["x"] * 101})}, "filters: should have at most 100 values"),
        ({"sort": "components"}, "sort: should name fields among id, name"),
        ({"sort": "--name"}, "sort: should name fields among id, name"),
    ],
)
async def test_wrong_filters_and_orders_are_explained(
    api: Served, database: Database, query: dict[str, str], words: str
) -> None:
    response = await keyed(api, await key_of(api, database)).get(PATH, params=query)
    assert response.status_code == 400
    assert response.json()["meta"]["developer_message"].startswith(words)
