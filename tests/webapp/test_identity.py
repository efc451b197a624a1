"""`GET` and `PUT /v1/contacts/{wa_id}/identity`, and the requests that an unacknowledged identity refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.conftest import Served, body, check_headers, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.wire import core

PATH = "/v1/contacts/15550110001/identity"


async def test_an_identity_is_returned_with_a_timestamp_in_milliseconds(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.respond(core.GetIdentity, lambda q: core.Identity(q.n, "Sjvjlx8G6Z0=", 1_602_532_300_000, False))
    response = await api.http.get(PATH)
    assert response.status_code == 200
    assert response.json() == body("identity")["identity"]
    check_headers(response)
    [request] = coreapp.requested(core.GetIdentity)
    assert (request.account, request.wa_id) == ("15550000000", "15550110001")


async def test_an_acknowledgement_passes_the_hash_to_the_coreapp(api: Served, coreapp: FakeCoreapp) -> None:
    response = await api.http.put("/v1/contacts/+15550110001/identity", json=body("identity")["acknowledgement"])
    assert response.status_code == 200
    assert set(response.json()) == {"meta"}
    [request] = coreapp.requested(core.AcknowledgeIdentity)
    assert (request.account, request.wa_id, request.hash) == ("15550000000", "15550110001", "Sjvjlx8G6Z0=")


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in body("identity_wrong")])
async def test_an_invalid_acknowledgement_is_refused_with_field_and_reason(
    api: Served, coreapp: FakeCoreapp, case: dict[str, Any]
) -> None:
    response = await api.http.put(PATH, json=case["body"])
    assert code(response) == (case["status"], case["code"])
    assert errors(response)[0]["details"].startswith(case["details"])
    assert not coreapp.requests


async def test_an_outdated_hash_gets_400_with_error_1009(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.AcknowledgeIdentity, 1009, "hash: is not the hash of the contact's current identity")
    assert code(await api.http.put(PATH, json={"hash": "AAAAAAAAAAA="})) == (400, 1009)


@pytest.mark.parametrize("wa_id", ["nobody", "1 555 011 0001", "१५५", "1" * 21, "+"])
async def test_an_invalid_wa_id_gets_404_unknown_contact(api: Served, coreapp: FakeCoreapp, wa_id: str) -> None:
    path = f"/v1/contacts/{wa_id}/identity"
    for response in (await api.http.get(path), await api.http.put(path, json={"hash": "Sjvjlx8G6Z0="})):
        assert code(response) == (404, 1006)
        assert errors(response)[0]["details"] == "unknown contact"
    assert not coreapp.requests


async def test_a_contact_unknown_to_the_coreapp_gets_404(api: Served, coreapp: FakeCoreapp) -> None:
    for kind in (core.GetIdentity, core.AcknowledgeIdentity):
        coreapp.refuse(kind, 1006, "unknown contact")
    for response in (await api.http.get(PATH), await api.http.put(PATH, json={"hash": "Sjvjlx8G6Z0="})):
        assert code(response) == (404, 1006)


async def test_a_message_to_an_unacknowledged_identity_is_refused(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.AcceptMessage, 1028, "the recipient has a new identity")
    response = await api.send()
    assert code(response) == (400, 1028)
    assert errors(response)[0]["title"] == "user_identity_changed needs acknowledgement"
    assert "Retry-After" not in response.headers


async def test_a_request_without_a_valid_token_gets_no_identity(api: Served, coreapp: FakeCoreapp) -> None:
    headers = {"Authorization": "Bearer x"}
    assert code(await api.http.get(PATH, headers=headers)) == (401, 1005)
    assert code(await api.http.put(PATH, headers=headers, json={"hash": "x"})) == (401, 1005)
    assert not coreapp.requests
