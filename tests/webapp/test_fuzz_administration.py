"""Any JSON, bytes and paths to the administration endpoints: no 5xx except the documented one."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.authority import Authority
from tests.media_samples import SAMPLES
from tests.webapp import strategies
from tests.webapp.conftest import Served, body, errors

_DIGITS = st.from_regex(r"\+?[0-9 ().-]{0,16}") | st.integers()
_NUMBER = {
    "cc": st.just("1") | _DIGITS | strategies.JSON,
    "phone_number": st.just("5550000000") | _DIGITS | strategies.JSON,
}
_TEXT = st.text() | strategies.JSON
_PIN = st.from_regex("[0-9]{4,7}", fullmatch=True) | strategies.JSON
_CERT = st.binary(max_size=60).map(lambda raw: base64.b64encode(raw).decode()) | strategies.JSON

_ENDPOINTS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "POST",
        "/v1/users",
        {
            "username": st.text(min_size=4, max_size=8) | strategies.JSON,
            "password": st.just("Aa1!aaaa") | strategies.JSON,
        },
    ),
    ("PUT", "/v1/users/admin", {"password": st.just("Aa1!aaaa") | _TEXT}),
    ("POST", "/v1/account", {**_NUMBER, "method": st.just("sms") | strategies.JSON, "cert": _CERT, "pin": _PIN}),
    ("POST", "/v1/account/verify", {"code": _DIGITS | strategies.JSON}),
    (
        "POST",
        "/v1/account/shards",
        {**_NUMBER, "shards": st.sampled_from([1, 2, "4"]) | strategies.JSON, "cert": _CERT},
    ),
    ("POST", "/v1/settings/account/two-step", {"pin": strategies.JSON}),
    ("PATCH", "/v1/settings/profile/about", {"text": _TEXT}),
    (
        "POST",
        "/v1/settings/business/profile",
        {
            **dict.fromkeys(["address", "description", "email", "vertical"], _TEXT),
            "websites": st.lists(st.from_regex(r"https://[^ ]{0,9}")) | strategies.JSON,
        },
    ),
    ("POST", "/v1/settings/business/whatsapp_business_encryption", {"business_public_key": _TEXT}),
    ("PUT", "/v1/contacts/15550110001/identity", {"hash": _TEXT}),
    ("POST", "/v1/groups", {"subject": _TEXT}),
    ("PUT", "/v1/groups/15550000000-1700000000", {"subject": _TEXT}),
    ("PATCH", "/v1/groups/15550000000-1700000000/admins", {"wa_ids": st.lists(_DIGITS) | strategies.JSON}),
    ("DELETE", "/v1/groups/15550000000-1700000000/participants", {"wa_ids": st.lists(_DIGITS) | strategies.JSON}),
    ("POST", "/v1/settings/backup", {"password": strategies.JSON}),
    ("POST", "/v1/settings/restore", {"password": _TEXT, "data": _CERT}),
    (
        "POST",
        "/v1/stickerpacks",
        {**dict.fromkeys(["publisher", "name"], _TEXT), "ios_app_store_link": st.just("") | _TEXT},
    ),
    ("PATCH", "/v1/stickerpacks/{pack}", {"name": _TEXT}),
    (
        "POST",
        "/v1/stickerpacks/{pack}/stickers",
        {"image_data_id": _TEXT, "emojis": st.lists(st.text()) | strategies.JSON},
    ),
    (
        "PATCH",
        "/v1/stickerpacks/{pack}/stickers/0",
        {"image_data_id": _TEXT, "emojis": st.lists(st.text()) | strategies.JSON},
    ),
]
_PROVIDERS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "name": _TEXT,
            "type": st.just("www") | strategies.JSON,
            "config": strategies.shaped(
                ["basic", "bearer"], _TEXT | strategies.shaped(["username", "password"], _TEXT)
            ),
        },
    )
)


Fuzz = Callable[[str, str, st.SearchStrategy[Any]], Awaitable[None]]


@pytest.fixture
def fuzz(api: Served, examples: Callable[[int], int]) -> Fuzz:
    """Function that sends generated contents by a method to a path. A content is a body, or a pair of a path and a
    body."""
    return lambda method, path, contents: _fuzz(api, method, path, contents, count=examples(100))


async def _fuzz(api: Served, method: str, path: str, contents: st.SearchStrategy[Any], *, count: int) -> None:
    loop = asyncio.get_running_loop()

    async def send(content: Any) -> None:
        where, what = content if isinstance(content, tuple) else (path, content)
        response = await api.http.request(method, where, content=what)
        if response.status_code >= 400:
            [first, *_] = errors(response)
            assert response.status_code < 500 or first["details"] == "Unable to create user. Already exist?", (
                response.text
            )
        elif response.headers["Content-Type"] == "application/json":
            assert response.json()["meta"]

    @hypothesis.settings(max_examples=count)
    @hypothesis.given(contents)
    def attempt(content: Any) -> None:
        asyncio.run_coroutine_threadsafe(send(content), loop).result(20)

    await asyncio.to_thread(attempt)


async def pack(api: Served) -> str:
    response = await api.http.post("/v1/stickerpacks", json={"publisher": "a", "name": "b"})
    pack_id: str = response.json()["stickerpacks"][0]["id"]
    sticker = {"content": SAMPLES["image/webp"], "headers": {"Content-Type": "image/webp"}}
    image = (await api.http.post("/v1/media", **sticker)).json()["media"][0]["id"]
    added = await api.http.post(f"/v1/stickerpacks/{pack_id}/stickers", json={"image_data_id": image})
    assert added.status_code == 201
    return pack_id


@pytest.mark.parametrize(("method", "path", "fields"), _ENDPOINTS, ids=[f"{m} {p}" for m, p, _ in _ENDPOINTS])
async def test_no_json_breaks_an_endpoint(
    api: Served, fuzz: Fuzz, method: str, path: str, fields: dict[str, Any]
) -> None:
    bodies = st.fixed_dictionaries({}, optional=fields) | st.fixed_dictionaries(fields) | strategies.JSON
    where = path.replace("{pack}", await pack(api))
    await fuzz(method, where, bodies.map(lambda value: json.dumps(value).encode()))


async def test_no_json_breaks_the_media_providers(fuzz: Fuzz) -> None:
    path = "/v1/settings/application/media/providers"
    await fuzz("POST", path, (_PROVIDERS | strategies.JSON).map(lambda value: json.dumps(value).encode()))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/users"),
        ("POST", "/v1/account"),
        ("POST", "/v1/settings/restore"),
        ("POST", "/v1/settings/application/media/providers"),
        ("POST", "/v1/settings/profile/photo"),
        ("POST", "/v1/certificates/external"),
        ("POST", "/v1/certificates/webhooks/ca"),
    ],
)
async def test_no_bytes_break_an_endpoint(fuzz: Fuzz, method: str, path: str) -> None:
    authority = Authority()
    good = json.dumps(body("account")).encode() if "certificates" not in path else authority.bundle("localhost")
    spliced = st.builds(
        lambda start, end, middle: good[:start] + middle + good[end:],
        st.integers(0, len(good)),
        st.integers(0, len(good)),
        st.binary(max_size=20),
    )
    await fuzz(method, path, st.binary(max_size=200) | spliced)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/users/{}"),
        ("PUT", "/v1/users/{}"),
        ("DELETE", "/v1/users/{}"),
        ("DELETE", "/v1/settings/application/media/providers/{}"),
        ("GET", "/v1/stickerpacks/{}"),
        ("PATCH", "/v1/stickerpacks/{}"),
        ("DELETE", "/v1/stickerpacks/{}"),
        ("GET", "/v1/stickerpacks/{}/stickers"),
        ("GET", "/v1/stickers{}"),
        ("GET", "/v1/stickerpacks?namespace={}"),
        ("GET", "/v1/settings/profile/photo?format={}"),
        ("GET", "/v1/stats/db?format={}"),
        ("GET", "/metrics?format={}"),
    ],
)
async def test_no_path_breaks_an_endpoint(api: Served, fuzz: Fuzz, method: str, path: str) -> None:
    await api.http.post("/v1/settings/profile/photo", content=b"\xff\xd8\xff")
    names = (st.text(max_size=40) | st.binary(max_size=10)).map(lambda name: path.format(quote(name, safe="")))
    await fuzz(method, path, names.map(lambda where: (where, b'{"name": "x", "password": "Aa1!aaaa"}')))


@pytest.mark.parametrize("pack_name", ["stickers/{}"])
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_no_index_breaks_a_pack(api: Served, fuzz: Fuzz, method: str, pack_name: str) -> None:
    where = f"/v1/stickerpacks/{await pack(api)}/{pack_name}"
    names = st.text(max_size=20).map(lambda name: where.format(quote(name, safe="")))
    await fuzz(method, where, names.map(lambda found: (found, b"{}")))
