"""`/v1/settings/profile` and `/v1/settings/business/profile`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.conftest import Served, body, check_headers, code, errors
from tests.webapp.roles import check_takes_a_token, ordinary
from webapp.api.profile import schemas
from webapp.http import pictures
from webapp.http.errors import InvalidRequest

ABOUT = "/v1/settings/profile/about"
PHOTO = "/v1/settings/profile/photo"
BUSINESS = "/v1/settings/business/profile"
META = {"version": "2.57.2", "api_status": "stable"}
JPEG = b"\xff\xd8\xff\xe0" + bytes(range(256)) * 40
PNG = b"\x89PNG\r\n\x1a\n" + b"\r\n\r\n--\r\n" * 100


async def about(api: Served) -> Any:
    response = await api.http.get(ABOUT)
    assert response.status_code == 200
    return response.json()


@pytest.mark.parametrize("text", ["We are here from 9 to 5", "", "x" * 139, "😀" * 139])
async def test_an_about_text_is_stored(api: Served, text: str) -> None:
    assert await about(api) == {"settings": {"profile": {"about": {"text": ""}}}, "meta": META}
    response = await api.http.patch(ABOUT, json={"text": text})
    assert (response.status_code, response.json()) == (200, {"meta": META})
    check_headers(response)
    assert (await about(api))["settings"]["profile"]["about"]["text"] == text


@pytest.mark.parametrize(
    ("content", "expected"), [({}, 1008), ({"text": "x" * 140}, 1009), ({"text": None}, 1009), ([], 1009)]
)
async def test_an_invalid_about_text_is_refused(api: Served, content: Any, expected: int) -> None:
    assert code(await api.http.patch(ABOUT, json=content)) == (400, expected)


@pytest.mark.parametrize(("content", "kind"), [(JPEG, "image/jpeg"), (PNG, "image/png")])
@pytest.mark.parametrize("form", [False, True])
async def test_a_photo_is_stored_unchanged(api: Served, content: bytes, kind: str, form: bool) -> None:
    if form:
        response = await api.http.post(PHOTO, files={"File": ("me.bin", content)}, data={"other": "x"})
    else:
        response = await api.http.post(PHOTO, content=content, headers={"Content-Type": "application/octet-stream"})
    assert (response.status_code, response.json()) == (200, {"meta": META})
    found = await api.http.get(PHOTO)
    assert found.status_code == 200
    assert found.headers["Content-Type"] == kind
    assert found.headers["Content-Length"] == str(len(content))
    assert found.content == content
    check_headers(found)


async def test_a_photo_has_a_link(api: Served) -> None:
    await api.http.post(PHOTO, content=JPEG)
    response = await api.http.get(PHOTO, params={"format": "link"})
    link = response.json()["settings"]["profile"]["photo"]["link"]
    assert (await api.http.get(link)).content == JPEG
    assert code(await api.http.get(PHOTO, params={"format": "gif"})) == (400, 1009)


async def test_a_missing_photo_gets_404(api: Served) -> None:
    for _ in range(2):
        for method, params in (("GET", {}), ("GET", {"format": "link"}), ("DELETE", {})):
            response = await api.http.request(method, PHOTO, params=params)
            assert code(response) == (404, 1006)
        assert (await api.http.post(PHOTO, content=JPEG)).status_code == 200
        assert (await api.http.delete(PHOTO)).status_code == 200


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"{}", b"\xff\xd8"])
async def test_a_photo_that_is_not_an_image_is_refused(api: Served, content: bytes) -> None:
    assert code(await api.http.post(PHOTO, content=content)) == (400, 1009)


async def test_a_large_photo_is_refused(api: Served) -> None:
    largest = JPEG + bytes(schemas.MAX_PHOTO - len(JPEG))
    assert code(await api.http.post(PHOTO, content=largest + b"x")) == (400, 1009)
    assert code(await api.http.post(PHOTO, content=largest + bytes(5000))) == (413, 1025)
    assert (await api.http.post(PHOTO, content=largest)).status_code == 200


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("multipart/form-data", b"", 1025),
        ("multipart/form-data; boundary=x", b"", 1025),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n", 1025),
        ("multipart/form-data; boundary=" + "x" * 257, b"--" + b"x" * 257 + b"\r\n\r\n--" + b"x" * 257 + b"--", 1025),
        ("multipart/form-data; boundary=x", b"--x--\r\n", 1025),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--x--', 1008),
        ('multipart/form-data; boundary="x y"', b"--x y\r\nname=File\r\n--x y--", 1008),
    ],
)
async def test_a_malformed_form_is_refused(api: Served, kind: str, content: bytes, expected: int) -> None:
    response = await api.http.post(PHOTO, content=content, headers={"Content-Type": kind})
    assert code(response) == (400, expected)


def test_the_file_field_of_a_form_is_found_with_preamble_and_epilogue() -> None:
    head = b'--x\r\nContent-Type: image/png\r\ncontent-disposition: form-data; filename="n"; name=file\r\n\r\n'
    content = b"\r\n--y\r\n\0"
    raw = b"preamble\r\n" + head + content + b"\r\n--x--\r\nepilogue"
    assert pictures.take_file(b"multipart/form-data; Boundary=x", raw, "File") == content
    with pytest.raises(InvalidRequest):
        pictures.take_file(b"multipart/form-data; boundary=y", raw, "File")


async def business(api: Served) -> Any:
    response = await api.http.get(BUSINESS)
    assert response.status_code == 200
    return response.json()["settings"]["business"]["profile"]


async def test_a_business_profile_is_replaced_as_a_whole(api: Served) -> None:
    empty = {"address": "", "description": "", "email": "", "vertical": "", "websites": []}
    assert await business(api) == empty
    full = {
        "address": "1 Example Street",
        "description": "d" * 256,
        "email": "desk@example.com",
        "vertical": "Other",
        "websites": ["https://example.com", "http://example.org/a"],
    }
    response = await api.http.post(BUSINESS, json=full)
    assert (response.status_code, response.json()) == (200, {"meta": META})
    assert await business(api) == full
    await api.http.post(BUSINESS, json={"address": "elsewhere", "email": None})
    assert await business(api) == empty | {"address": "elsewhere"}


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in body("business_profile_wrong")])
async def test_an_invalid_business_profile_is_refused(api: Served, case: dict[str, Any]) -> None:
    content = case["body"] if "body" in case else {case["field"]: "x" * case["length"]}
    response = await api.http.post(BUSINESS, json=content)
    assert code(response) == (400, 1009)
    assert errors(response)[0]["details"].startswith(case["details"])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ABOUT),
        ("PATCH", ABOUT),
        ("GET", PHOTO),
        ("POST", PHOTO),
        ("DELETE", PHOTO),
        ("GET", BUSINESS),
        ("POST", BUSINESS),
    ],
)
async def test_profile_endpoints_accept_the_token_of_any_user(api: Served, method: str, path: str) -> None:
    await check_takes_a_token(api, method, path)
    response = await api.http.request(method, path, headers=await ordinary(api), json={"text": "x"})
    assert response.status_code in (200, 400, 404)
