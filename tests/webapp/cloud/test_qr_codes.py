"""QR codes of the Cloud API: creation, change, lists, pictures and deletion."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from tests.webapp.cloud.conftest import NUMBER, Cloud, check_headers, details, error, page_and_delete
from tests.webapp.cloud.test_numbers import OTHER_NUMBER, check_beyond
from tests.webapp.test_numbers import second
from tidings.storage.business import message_qr_codes
from tidings.storage.business.message_qr_codes import MessageQrCode
from tidings.storage.database import Database

PATH = f"/v25.0/{NUMBER}/message_qrdls"
ACCOUNT = "15550000000"


async def create(cloud: Cloud, text: str = "Hello", **fields: Any) -> httpx.Response:
    return await cloud.http.post(PATH, json={"prefilled_message": text, **fields})


async def test_a_qr_code_is_created_shown_changed_and_deleted(cloud: Cloud) -> None:
    assert (await cloud.http.get(PATH)).text == '{"data":[]}'
    response = await create(cloud, "Cyber Monday", generate_qr_image="SVG")
    check_headers(response)
    made = response.json()
    assert list(made) == ["code", "prefilled_message", "deep_link_url", "qr_image_url"]
    code = made["code"]
    assert re.fullmatch("[A-Z0-9]{14}", code)
    assert f'"deep_link_url":"https:\\/\\/wa.me\\/message\\/{code}"' in response.text
    entry = {"code": code, "prefilled_message": "Cyber Monday", "deep_link_url": made["deep_link_url"]}
    assert (await cloud.http.get(f"{PATH}/{code}")).json() == {"data": [entry]}
    listed = (await cloud.http.get(PATH)).json()
    assert listed["data"] == [entry]
    assert list(listed["data"][0]) == list(entry)
    assert list(listed["paging"]) == ["cursors"]
    changed = await create(cloud, "Summer", code=code)
    assert changed.json() == {**entry, "prefilled_message": "Summer"}
    other = (await create(cloud, "Other")).json()["code"]
    found = (await cloud.http.get(PATH, params={"code": code, "fields": "prefilled_message,code"})).json()["data"]
    assert found == [{"prefilled_message": "Summer", "code": code}]
    assert (await cloud.http.delete(f"{PATH}/{code}")).text == '{"success":true}'
    assert [each["code"] for each in (await cloud.http.get(PATH)).json()["data"]] == [other]
    check_beyond(await cloud.http.get(f"{PATH}/{code}"), code)
    assert error(await cloud.http.delete(f"{PATH}/{code}")) == (400, 100, "(#100) Invalid post_id parameter")
    check_beyond(await create(cloud, "x", code=code), code)


@pytest.mark.parametrize(("form", "media_type"), [("PNG", "image/png"), ("svg", "image/svg+xml")])
async def test_the_picture_of_a_qr_code_needs_no_token_and_ends_with_the_code(
    cloud: Cloud, form: str, media_type: str
) -> None:
    made = (await create(cloud, generate_qr_image=form)).json()
    url = made["qr_image_url"]
    assert url.startswith(f"http://127.0.0.1:0/whatsapp_business/pictures/?id={NUMBER}&kind=qr&name={made['code']}.")
    path = f"{PATH}/{made['code']}?fields=qr_image_url.format({form})"
    assert (await cloud.http.get(path)).json() == {"data": [{"qr_image_url": url}]}
    token = cloud.http.headers.pop("Authorization")
    picture = await cloud.http.get(url)
    assert (picture.status_code, picture.headers["content-type"]) == (200, media_type)
    assert picture.headers["x-content-type-options"] == "nosniff"
    assert picture.headers.get_list("cache-control") == ["no-store"]
    assert picture.content.startswith(b"\x89PNG" if form == "PNG" else b"<?xml")
    assert error(await cloud.http.get(url.replace(made["code"], "A" * 14)))[0] == 404
    assert error(await cloud.http.get(url.partition("?")[0]))[0] == 404
    cloud.http.headers["Authorization"] = token
    await cloud.http.delete(f"{PATH}/{made['code']}")
    assert error(await cloud.http.get(url))[0] == 404


@pytest.mark.parametrize(
    ("fields", "message", "reason"),
    [
        ({"prefilled_message": ""}, "(#100) The parameter prefilled_message is required.", None),
        ({"prefilled_message": "x" * 141}, None, "prefilled_message: should have at most 140 characters"),
        ({"generate_qr_image": "GIF"}, '(#100) Param generate_qr_image must be one of {SVG, PNG} - got "GIF".', None),
    ],
)
async def test_a_wrong_body_is_refused(
    cloud: Cloud, fields: dict[str, Any], message: str | None, reason: str | None
) -> None:
    response = await cloud.http.post(PATH, json={"prefilled_message": "Hello", **fields})
    assert error(response)[:2] == (400, 100)
    if message is not None:
        assert error(response)[2] == message
    else:
        assert details(response) == reason
    assert (await cloud.http.get(PATH)).json() == {"data": []}


async def test_the_longest_text_may_have_any_characters(cloud: Cloud) -> None:
    text = "\U0001f600" * 140
    assert (await create(cloud, text)).json()["prefilled_message"] == text


async def test_a_number_has_at_most_2000_qr_codes(cloud: Cloud, database: Database) -> None:
    async with database.transaction() as connection:
        for n in range(1_999):
            await message_qr_codes.save(connection, MessageQrCode(ACCOUNT, f"CODE{n:010}", "x", 1))
    assert (await create(cloud)).status_code == 200
    assert details(await create(cloud)) == "this number has 2000 QR codes"
    assert (await create(cloud, "changed", code="CODE0000000000")).status_code == 200
    page = (await cloud.http.get(PATH, params={"limit": 1})).json()
    assert list(page["paging"]) == ["cursors", "next"]


async def test_a_qr_code_belongs_to_one_number(cloud: Cloud, database: Database) -> None:
    headers = await second(cloud.served, database)
    code = (await create(cloud)).json()["code"]
    path = f"/{OTHER_NUMBER}/message_qrdls"
    assert (await cloud.http.get(path, headers=headers)).json() == {"data": []}
    check_beyond(await cloud.http.get(f"{path}/{code}", headers=headers), code)
    assert error(await cloud.http.delete(f"{path}/{code}", headers=headers))[:2] == (400, 100)
    check_beyond(await cloud.http.get(f"{path}/{code}"), OTHER_NUMBER)


async def test_deeper_paths_and_wrong_fields_are_refused(cloud: Cloud) -> None:
    code = (await create(cloud)).json()["code"]
    check_beyond(await cloud.http.get(f"{PATH}/{code}/more"), NUMBER)
    assert error(await cloud.http.get(f"{PATH}?fields=nothing"))[2] == (
        "(#100) Tried accessing nonexisting field (nothing) on node type (WhatsAppBusinessMessageQRDL)"
    )
    assert error(await cloud.http.get(f"{PATH}?fields=qr_image_url.format(GIF)"))[2] == (
        '(#100) Param format must be one of {SVG, PNG} - got "GIF".'
    )


async def test_a_list_goes_on_after_a_page_whose_codes_were_deleted(cloud: Cloud) -> None:
    made = [(await create(cloud, f"text {n}")).json()["code"] for n in range(6)]
    seen = await page_and_delete(cloud, PATH, "code", lambda code: cloud.http.delete(f"{PATH}/{code}"))
    assert sorted(seen) == sorted(made)
