"""`/v1/groups`, and messages to groups: requests to the Coreapp, and the error of each wrong input."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.webapp.conftest import Served, body, check_headers, code, errors
from tests.webapp.fake_coreapp import GROUP, FakeCoreapp
from tests.webapp.roles import check_takes_a_token, ordinary
from tidings.wire import core

PATH = "/v1/groups"
META = {"version": "2.57.2", "api_status": "stable"}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
JPEG = b"\xff\xd8\xff\xe0" + bytes(500)


def named(file: str) -> list[Any]:
    return [pytest.param(case, id=case["case"]) for case in body(file)]


async def request(api: Served, case: dict[str, Any], **more: Any) -> Any:
    content = json.dumps(case["body"]).encode() if "body" in case else None
    return await api.http.request(case["method"], PATH + case["path"], content=content, **more)


@pytest.mark.parametrize("case", named("groups"))
async def test_requests_reach_the_coreapp_and_its_response_the_client(
    api: Served, coreapp: FakeCoreapp, case: dict[str, Any]
) -> None:
    response = await request(api, case)
    assert (response.status_code, response.json()) == (case["status"], case["response"] | {"meta": META})
    check_headers(response)
    (received,) = coreapp.requests
    fields = msgspec.to_builtins(received)
    assert fields.pop("n") > 0
    assert fields.pop("request_id", response.headers["X-Request-ID"]) == response.headers["X-Request-ID"]
    assert fields == case["request"]


@pytest.mark.parametrize("case", named("groups_wrong"))
async def test_an_invalid_request_is_refused_with_field_and_reason(
    api: Served, coreapp: FakeCoreapp, case: dict[str, Any]
) -> None:
    response = await request(api, case)
    assert code(response) == (case["status"], case["code"])
    assert errors(response)[0]["details"].startswith(case["details"])
    assert not coreapp.requests


@pytest.mark.parametrize("case", named("groups"))
async def test_groups_accept_the_token_of_any_user(api: Served, case: dict[str, Any]) -> None:
    given = {"json": case["body"]} if "body" in case else {}
    await check_takes_a_token(api, case["method"], PATH + case["path"], **given)
    assert (await request(api, case, headers=await ordinary(api))).status_code == case["status"]


@pytest.mark.parametrize("form", [True, False])
@pytest.mark.parametrize("content", [PNG, JPEG])
async def test_an_icon_reaches_the_coreapp_unchanged(
    api: Served, coreapp: FakeCoreapp, content: bytes, form: bool
) -> None:
    path = f"{PATH}/{GROUP}/icon"
    if form:
        response = await api.http.post(path, files={"File": ("icon", content, "image/png")})
    else:
        response = await api.http.post(path, content=content, headers={"Content-Type": "image/png"})
    assert (response.status_code, response.json()) == (200, {"meta": META})
    (request,) = coreapp.requested(core.ChangeGroup)
    assert (request.action, request.icon) == (core.SET_ICON, content)


async def test_an_icon_is_returned_as_its_bytes(api: Served) -> None:
    response = await api.http.get(f"{PATH}/{GROUP}/icon")
    assert (response.status_code, response.headers["Content-Type"]) == (200, "image/png")
    assert response.content == b"\x89PNG\r\n\x1a\nicon"


@pytest.mark.parametrize(
    ("content", "status", "wrong"),
    [
        (b"GIF89a", 400, 1009),
        (b"", 400, 1009),
        (PNG + bytes(64 * 1024), 400, 1009),
        (PNG + bytes(80 * 1024), 413, 1025),
    ],
)
async def test_an_unusable_icon_is_refused(
    api: Served, coreapp: FakeCoreapp, content: bytes, status: int, wrong: int
) -> None:
    response = await api.http.post(f"{PATH}/{GROUP}/icon", content=content, headers={"Content-Type": "image/png"})
    assert code(response) == (status, wrong)
    assert not coreapp.requests


@pytest.mark.parametrize(
    ("refused", "status", "title"),
    [
        (1003, 403, "Not a group participant"),
        (1006, 404, "Resource not found"),
        (1014, 500, "Internal error"),
        (1019, 403, "Not Group Admin"),
        (1021, 400, "Bad User"),
    ],
)
async def test_a_refusal_of_the_coreapp_keeps_its_code(
    api: Served, coreapp: FakeCoreapp, refused: int, status: int, title: str
) -> None:
    coreapp.refuse(core.GetGroup, refused, "because")
    response = await api.http.get(f"{PATH}/{GROUP}")
    assert response.status_code == status
    assert errors(response) == [{"code": refused, "title": title, "details": "because"}]


async def test_a_group_message_reaches_the_coreapp_with_its_recipient_type(api: Served, coreapp: FakeCoreapp) -> None:
    response = await api.send(to=GROUP, recipient_type="group")
    assert response.status_code == 201
    # No contact: a group has no wa_id.
    assert response.json() == {"messages": [{"id": "gBEG1"}], "meta": META}
    (request,) = coreapp.requested(core.AcceptMessage)
    assert (request.to, request.recipient_type) == (GROUP, "group")


async def test_a_message_to_an_unknown_group_is_refused(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.AcceptMessage, 1006, "unknown group")
    response = await api.send(to=GROUP, recipient_type="group")
    assert response.status_code == 404
    assert errors(response) == [{"code": 1006, "title": "Resource not found", "details": "unknown group"}]


async def test_a_group_id_is_not_accepted_as_a_phone_number(api: Served, coreapp: FakeCoreapp) -> None:
    # Hyphens are removed from numbers, so this number has too many digits.
    assert code(await api.send(to=GROUP)) == (400, 1009)
    assert not coreapp.requests
