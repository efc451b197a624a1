"""Templates of the Cloud API: creation, lists with cursors and filters, and deletion."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.webapp.cloud.conftest import WABA, Cloud, error, page_and_delete, untraced

PATH = f"/v25.0/{WABA}/message_templates"
COMPONENTS = [
    {"type": "body", "text": "Hello {{1}}", "example": {"body_text": [["Ana"]]}},
    {"type": "FOOTER", "text": "Bye"},
]


async def create(cloud: Cloud, name: str, **fields: Any) -> httpx.Response:
    definition = {"name": name, "language": "en_US", "category": "marketing", "components": COMPONENTS, **fields}
    return await cloud.http.post(PATH, json={key: value for key, value in definition.items() if value is not ...})


async def test_a_template_is_created_shown_and_listed(cloud: Cloud) -> None:
    assert (await cloud.http.get(PATH)).text == '{"data":[]}'
    response = await create(cloud, "order", status="PAUSED", allow_category_change=True)
    template_id = response.json()["id"]
    assert response.text == f'{{"id":"{template_id}","status":"APPROVED","category":"MARKETING"}}'
    expected = {
        "name": "order",
        "parameter_format": "POSITIONAL",
        "components": [
            {"type": "BODY", "text": "Hello {{1}}", "example": {"body_text": [["Ana"]]}},
            {"type": "FOOTER", "text": "Bye"},
        ],
        "language": "en_US",
        "status": "APPROVED",
        "category": "MARKETING",
        "id": template_id,
    }
    shown = (await cloud.http.get(f"/{template_id}")).json()
    assert shown == expected
    assert list(shown) == list(expected)
    page = (await cloud.http.get(PATH)).json()
    assert page["data"] == [expected]
    assert list(page["paging"]) == ["cursors"]
    assert (await cloud.http.get(f"/{template_id}?fields=name")).json() == {"name": "order", "id": template_id}


async def test_a_list_has_cursors_and_urls_that_lead_through_it(cloud: Cloud) -> None:
    names = [f"t{n}" for n in range(5)]
    for name in names:
        assert (await create(cloud, name)).status_code == 200
    page = (await cloud.http.get(PATH, params={"limit": 2, "fields": "name"})).json()
    seen = [page]
    while "next" in page["paging"]:
        assert page["paging"]["next"].startswith(f"http://127.0.0.1:0{PATH}?")
        page = (await cloud.http.get(page["paging"]["next"])).json()
        seen.append(page)
    assert [[entry["name"] for entry in one["data"]] for one in seen] == [["t0", "t1"], ["t2", "t3"], ["t4"]]
    assert "previous" not in seen[0]["paging"]
    back = (await cloud.http.get(seen[2]["paging"]["previous"])).json()
    assert [entry["name"] for entry in back["data"]] == ["t2", "t3"]
    after = seen[0]["paging"]["cursors"]["after"]
    one = (await cloud.http.get(PATH, params={"after": after, "limit": 1})).json()
    assert [entry["name"] for entry in one["data"]] == ["t2"]
    assert error(await cloud.http.get(PATH, params={"after": "é"}))[1] == 131059
    assert error(await cloud.http.get(PATH, params={"limit": "x"}))[1] == 100


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"name": "ord"}, ["order"]),
        ({"name_or_content": "hello"}, ["order", "promo"]),
        ({"status": "approved,PENDING"}, ["order", "promo"]),
        ({"status": "REJECTED"}, []),
        ({"category": "UTILITY"}, ["order"]),
        ({"category": '["UTILITY","MARKETING"]'}, ["order", "promo"]),
        ({"language": "de"}, ["promo"]),
        ({"language": "de", "category": "utility"}, []),
    ],
)
async def test_a_list_is_filtered(cloud: Cloud, filters: dict[str, str], names: list[str]) -> None:
    await create(cloud, "order", category="UTILITY")
    await create(cloud, "promo", language="de")
    found = (await cloud.http.get(PATH, params=filters)).json()
    assert [entry["name"] for entry in found["data"]] == names


async def test_a_template_is_deleted_by_name_or_by_id(cloud: Cloud) -> None:
    await create(cloud, "order")
    german = (await create(cloud, "order", language="de")).json()["id"]
    deleted = await cloud.http.delete(PATH, params={"name": "order", "hsm_id": german})
    assert deleted.text == '{"success":true}'
    assert [entry["language"] for entry in (await cloud.http.get(PATH)).json()["data"]] == ["en_US"]
    assert (await cloud.http.delete(PATH, params={"name": "order"})).text == '{"success":true}'
    assert error(await cloud.http.get(f"/{german}"))[:2] == (400, 100)
    missing = await cloud.http.delete(PATH, params={"name": "fake name"})
    assert missing.status_code == 400
    assert untraced(missing) == (
        b'{"error":{"message":"Invalid parameter","type":"OAuthException","code":100,"error_subcode":2593002,'
        b'"is_transient":false,"error_user_title":"Message Template Not Found","error_user_msg":"The message template '
        b'fake name wasn\'t found for this account.","fbtrace_id":"TRACE"}}'
    )
    assert error(await cloud.http.delete(PATH))[2] == "(#100) The parameter name is required."


async def test_a_wrong_or_existing_template_is_refused(cloud: Cloud) -> None:
    await create(cloud, "order")
    again = await create(cloud, "order")
    assert again.json()["error"]["error_subcode"] == 2388043
    assert error(await create(cloud, "x", category=...))[2] == "(#100) The parameter category is required."
    assert error(await create(cloud, "No Name"))[0] == 400
    assert error(await create(cloud, "x", components=[]))[0] == 400


@pytest.mark.parametrize(
    ("fields", "subcode", "title"),
    [
        ({"name": "n" * 513}, 2388040, "Character Limit Exceeded"),
        ({"components": [{"type": "BODY", "text": "b" * 1025}]}, 2388040, "Character Limit Exceeded"),
        ({"components": [*COMPONENTS, {"type": "header", "text": "h" * 61}]}, 2388040, "Character Limit Exceeded"),
        (
            {"components": [*COMPONENTS, {"type": "HEADER", "format": "TEXT", "text": "{{1}} {{2}}"}]},
            2388047,
            "Message Header Format Is Incorrect",
        ),
        ({"components": [*COMPONENTS, {"type": "HEADER"}]}, 2388047, "Message Header Format Is Incorrect"),
        ({"components": [{"type": "BODY", "text": "Hello {{2}}"}]}, 2388072, "Message Body Format Is Incorrect"),
        (
            {"components": [COMPONENTS[0], {"type": "FOOTER", "text": "Bye {{1}}"}]},
            2388073,
            "Message Footer Format Is Incorrect",
        ),
        ({"name": "No Name"}, None, None),
        ({"category": "OTHER"}, None, None),
        ({"components": "x"}, None, None),
        ({"components": ["x"]}, None, None),
        ({"components": [{"type": "BUTTONS", "buttons": [{"type": "QUICK_REPLY", "text": 7}]}]}, None, None),
    ],
)
async def test_an_error_says_what_is_wrong_in_a_definition(
    cloud: Cloud, fields: dict[str, object], subcode: int | None, title: str | None
) -> None:
    await create(cloud, "order")
    [stored] = (await cloud.http.get(PATH)).json()["data"]
    responses = [await create(cloud, **{"name": "x", **fields})]
    if "name" not in fields:
        responses.append(await cloud.http.post(f"/{stored['id']}", json=fields))
    for response in responses:
        found = response.json()["error"]
        assert (response.status_code, found["code"], found.get("error_subcode")) == (400, 100, subcode)
        assert found.get("error_user_title") == title


async def test_a_list_has_the_requested_counts(cloud: Cloud) -> None:
    await create(cloud, "order")
    names = "total_count,message_template_count,message_template_limit,are_translations_complete"
    found = (await cloud.http.get(PATH, params={"summary": names})).json()
    assert list(found) == ["data", "paging", "summary"]
    assert found["summary"] == {
        "total_count": 1,
        "message_template_count": 1,
        "message_template_limit": 250,
        "are_translations_complete": True,
    }
    assert error(await cloud.http.get(PATH, params={"summary": "x"}))[1] == 100


async def test_a_template_is_edited(cloud: Cloud) -> None:
    template_id = (await create(cloud, "order")).json()["id"]
    components = [{"type": "BODY", "text": "Good morning {{1}}"}]
    edited = await cloud.http.post(f"/v25.0/{template_id}", json={"components": components})
    assert (edited.status_code, edited.text) == (200, '{"success":true}')
    shown = (await cloud.http.get(f"/{template_id}")).json()
    assert (shown["components"], shown["status"], shown["category"]) == (components, "APPROVED", "MARKETING")
    refused: list[dict[str, object]] = [{}, {"category": "UTILITY"}, {"components": []}]
    for body in refused:
        assert error(await cloud.http.post(f"/{template_id}", json=body))[0] == 400
    await cloud.http.post("/v1/configs/templates", json={**shown, "name": "held", "status": "DISABLED"})
    [held] = (await cloud.http.get(PATH, params={"name": "held"})).json()["data"]
    assert error(await cloud.http.post(f"/{held['id']}", json={"components": components}))[1] == 100
    assert error(await cloud.http.post("/5000000000000000", json={"components": components}))[1] == 100


@pytest.mark.parametrize(
    "given",
    [{"hsm_ids": []}, {"hsm_id": ""}, {"hsm_id": {"id": 1}}, {"hsm_id": 1.5}, {"hsm_ids": "5363147003229588"}],
)
async def test_a_name_with_an_unusable_id_deletes_nothing(cloud: Cloud, given: dict[str, Any]) -> None:
    for language in ("en_US", "de"):
        await create(cloud, "order", language=language)
    await cloud.http.request("DELETE", PATH, json={"name": "order", **given})
    assert len((await cloud.http.get(PATH)).json()["data"]) == 2


async def test_ids_may_be_a_text_with_commas(cloud: Cloud) -> None:
    ids = [(await create(cloud, name)).json()["id"] for name in ("a", "b", "c")]
    assert (await cloud.http.delete(PATH, params={"hsm_ids": f"{ids[0]}, {ids[2]}"})).is_success
    assert [entry["name"] for entry in (await cloud.http.get(PATH)).json()["data"]] == ["b"]


async def test_a_list_goes_on_after_a_page_whose_entries_were_deleted(cloud: Cloud) -> None:
    names = [f"t{n}" for n in range(6)]
    for name in names:
        await create(cloud, name)
    seen = await page_and_delete(cloud, PATH, "name", lambda name: cloud.http.delete(PATH, params={"name": name}))
    assert seen == names


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ('it\'s "new"', ["sale"]),
        ('"new"\nhere', ["sale"]),
        ("stop", ["sale"]),
        ("type", []),
        ("body", []),
        ("ana", []),
        ("bye", ["order"]),
    ],
)
async def test_a_list_is_searched_for_the_texts_of_its_templates(cloud: Cloud, wanted: str, found: list[str]) -> None:
    await create(cloud, "order")
    buttons = {"type": "BUTTONS", "buttons": [{"type": "QUICK_REPLY", "text": "Stop"}]}
    await create(cloud, "sale", components=[{"type": "BODY", "text": 'It\'s "new"\nhere'}, buttons])
    page = (await cloud.http.get(PATH, params={"name_or_content": wanted})).json()
    assert [entry["name"] for entry in page["data"]] == found
