"""`POST /v1/contacts`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.conftest import Served, body, check_headers, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.wire import core


async def test_inputs_are_returned_as_sent_and_in_order(api: Served, coreapp: FakeCoreapp) -> None:
    inputs = ["+1 555 011 0001", "15550110002", "12", " ü ", "+1 555 011 0001"]
    response = await api.http.post("/v1/contacts", json={"blocking": "wait", "contacts": inputs, "force_check": True})
    assert response.status_code == 200
    assert response.json() == {
        "contacts": [
            {"input": "+1 555 011 0001", "status": "valid", "wa_id": "15550110001"},
            {"input": "15550110002", "status": "valid", "wa_id": "15550110002"},
            {"input": "12", "status": "invalid"},
            {"input": " ü ", "status": "invalid"},
            {"input": "+1 555 011 0001", "status": "valid", "wa_id": "15550110001"},
        ],
        "meta": {"version": "2.57.2", "api_status": "stable"},
    }
    check_headers(response)
    [request] = coreapp.requested(core.CheckContacts)
    assert (request.account, request.inputs, request.wait, request.force_check) == (
        "15550000000",
        inputs,
        True,
        True,
    )


async def test_the_defaults_are_no_wait_and_no_force_check(api: Served, coreapp: FakeCoreapp) -> None:
    for extra in ({}, {"blocking": None, "force_check": None}, {"blocking": "no_wait", "force_check": False}):
        assert (await api.http.post("/v1/contacts", json={"contacts": ["+15550110001"], **extra})).status_code == 200
    assert {(q.wait, q.force_check) for q in coreapp.requested(core.CheckContacts)} == {(False, False)}


async def test_a_contact_in_processing_has_no_wa_id(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.respond(
        core.CheckContacts, lambda q: core.Contacts(n=q.n, contacts=[core.Contact(i, "processing") for i in q.inputs])
    )
    response = await api.http.post("/v1/contacts", json={"contacts": ["+15550110001"]})
    assert response.json()["contacts"] == [{"input": "+15550110001", "status": "processing"}]


async def test_a_call_accepts_5000_numbers_and_refuses_5001(api: Served) -> None:
    numbers = [f"+1555{n:07}" for n in range(5001)]
    response = await api.http.post("/v1/contacts", json={"blocking": "wait", "contacts": numbers[:5000]})
    assert [contact["input"] for contact in response.json()["contacts"]] == numbers[:5000]
    assert code(await api.http.post("/v1/contacts", json={"contacts": numbers})) == (400, 1009)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in body("contacts_wrong")])
async def test_an_invalid_call_is_refused_with_field_and_reason(
    api: Served, coreapp: FakeCoreapp, case: dict[str, Any]
) -> None:
    response = await api.http.post("/v1/contacts", json=case["body"])
    assert code(response) == (case["status"], case["code"])
    assert errors(response)[0]["details"].startswith(case["details"])
    assert not coreapp.requests


async def test_a_call_without_a_valid_token_checks_no_contact(api: Served, coreapp: FakeCoreapp) -> None:
    response = await api.http.post("/v1/contacts", json={"contacts": ["1"]}, headers={"Authorization": "Bearer x"})
    assert code(response) == (401, 1005)
    assert not coreapp.requests


async def test_a_repeated_call_that_does_not_wait_has_the_id_of_the_first_one(
    api: Served, coreapp: FakeCoreapp
) -> None:
    def lose_the_first(request: core.CheckContacts) -> core.Frame | None:
        if len(coreapp.requested(core.CheckContacts)) == 1:
            coreapp.drop()
            return None
        return core.Contacts(n=request.n, contacts=[core.Contact(text, "processing") for text in request.inputs])

    coreapp.respond(core.CheckContacts, lose_the_first)
    for _ in range(2):
        assert (await api.http.post("/v1/contacts", json={"contacts": ["+15550110001"]})).status_code == 200
    assert (await api.http.post("/v1/contacts", json={"contacts": ["+1555"], "blocking": "wait"})).status_code == 200
    first, repeated, second, waiting = [request.id for request in coreapp.requested(core.CheckContacts)]
    assert first == repeated != second
    assert first
    assert second
    assert not waiting
