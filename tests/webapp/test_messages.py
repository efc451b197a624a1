"""`POST /v1/messages`: accepted messages, content that reaches the Coreapp, and the error of each wrong input."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.webapp.conftest import Served, body, check_headers, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.wire import core


def named(file: str) -> list[Any]:
    return [pytest.param(case, id=case["case"]) for case in body(file)]


@pytest.mark.parametrize("case", named("messages_good"))
async def test_a_valid_message_reaches_the_coreapp_with_its_content(
    api: Served, coreapp: FakeCoreapp, case: dict[str, Any]
) -> None:
    response = await api.http.post("/v1/messages", json=case["body"])
    assert response.status_code == 201
    [request] = coreapp.requested(core.AcceptMessage)
    assert (request.account, request.to, request.kind) == ("15550000000", case["to"], "text")
    assert json.loads(request.content) == case["content"]
    assert request.request_id == response.headers["X-Request-ID"]
    assert response.json() == {
        "messages": [{"id": "gBEG1"}],
        "contacts": [{"input": str(case["body"]["to"]), "wa_id": case["to"]}],
        "meta": {"version": "2.57.2", "api_status": "stable"},
    }
    check_headers(response)


@pytest.mark.parametrize("case", named("messages_wrong"))
async def test_an_invalid_message_is_refused_with_field_and_reason(
    api: Served, coreapp: FakeCoreapp, case: dict[str, Any]
) -> None:
    response = await api.http.post("/v1/messages", content=json.dumps(case["body"]))
    assert code(response) == (case["status"], case["code"])
    assert case["details"] in [error["details"][: len(case["details"])] for error in errors(response)]
    assert not coreapp.requests


@pytest.mark.parametrize("letter", ["x", "ü", "👋"])
async def test_a_text_of_4096_characters_is_accepted_and_one_more_is_refused(api: Served, letter: str) -> None:
    assert (await api.send(text={"body": letter * 4096})).status_code == 201
    response = await api.send(text={"body": letter * 4097})
    assert code(response) == (400, 1001)
    assert errors(response) == [
        {"code": 1001, "title": "Message too long", "details": "text.body: has 4097 characters, the limit is 4096"}
    ]


async def test_each_invalid_field_is_named(api: Served) -> None:
    response = await api.send(to=[], preview_url="maybe", text={})
    assert {(error["code"], error["details"].split(":")[0]) for error in errors(response)} == {
        (1009, "to"),
        (1009, "preview_url"),
        (1008, "text.body"),
    }


async def test_a_wa_id_that_differs_from_the_input_is_not_returned(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.respond(core.AcceptMessage, lambda q: core.Accepted(n=q.n, id="gBEGx", wa_id="5215550110001"))
    assert set((await api.send()).json()) == {"messages", "meta"}


@pytest.mark.parametrize(
    ("refused", "status", "title", "retry_after"),
    [
        (1006, 404, "Resource not found", None),
        (1013, 400, "User is not valid", None),
        (1014, 500, "Internal error", None),
        (1015, 429, "Too many requests", "1"),
        (1016, 503, "System overloaded", "1"),
        (1011, 503, "Service not ready", None),
        (1021, 400, "Bad User", None),
    ],
)
async def test_a_refusal_of_the_coreapp_becomes_the_documented_status(
    api: Served, coreapp: FakeCoreapp, refused: int, status: int, title: str, retry_after: str | None
) -> None:
    coreapp.refuse(core.AcceptMessage, refused, "why not")
    response = await api.send()
    assert response.status_code == status
    assert errors(response) == [{"code": refused, "title": title, "details": "why not"}]
    assert response.headers.get("Retry-After") == retry_after


async def test_an_unknown_contact_gets_404_with_the_documented_text(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.AcceptMessage, 1006, "unknown contact")
    response = await api.send()
    assert response.status_code == 404
    assert errors(response) == [{"code": 1006, "title": "Resource not found", "details": "unknown contact"}]


async def test_the_retry_after_of_the_coreapp_is_passed_on(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.AcceptMessage, 1016, "the job queue is full", retry_after=7)
    assert (await api.send()).headers["Retry-After"] == "7"


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer a.b.c", "Bearer wrong", "Token x", "Basic YWRtaW46c2VjcmV0"]
)
async def test_nothing_is_sent_without_a_valid_token(api: Served, coreapp: FakeCoreapp, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    del api.http.headers["Authorization"]
    response = await api.http.post("/v1/messages", json=body("message_text"), headers=headers)
    assert code(response) == (401, 1005)
    assert response.headers["WWW-Authenticate"].startswith("Bearer")
    assert not coreapp.requests


async def test_the_token_is_checked_before_the_body(api: Served) -> None:
    response = await api.http.post("/v1/messages", content=b"{", headers={"Authorization": "Bearer wrong"})
    assert response.status_code == 401


async def test_a_missing_or_wrong_content_type_is_accepted(api: Served) -> None:
    content = json.dumps(body("message_text")).encode()
    for kind in (
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-8",
        "nonsense",
    ):
        headers = {} if kind is None else {"Content-Type": kind}
        assert (await api.http.post("/v1/messages", content=content, headers=headers)).status_code == 201


async def test_the_length_of_a_number_that_is_too_long_is_named_in_characters(api: Served) -> None:
    [error] = errors(await api.send(to="1" * 65))
    assert error["details"] == "to: should have at most 64 characters"
