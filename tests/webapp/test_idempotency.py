"""`Idempotency-Key` on `POST /v1/messages`: requests that reach the Coreapp, and responses to repetitions."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests import statements
from tests.webapp.conftest import Served, body, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.business import idempotency
from tidings.storage.database import Database
from tidings.wire import core
from webapp.auth.idempotency import fingerprint_of

ACCOUNT = "15550000000"
TEMPLATE = {"name": "plain", "language": "en_US", "components": [{"type": "body", "text": "Welcome!"}]}
SENDING = {"to": "15550110001", "type": "template", "template": {"name": "plain", "language": {"code": "en_US"}}}

IMAGE = {"to": "15550110001", "type": "image", "image": {"id": "8e4d2e0c-6c3d-4b53-a9f4-2f2a8c9d0e11"}}


async def remember(
    database: Database, key: str, request: Any, response: str, created_at: int, username: str = "admin"
) -> None:
    """Store a used key, as a Coreapp does in the transaction of the message."""
    shared = idempotency.key_of(username, key).shared
    used = idempotency.UsedKey(
        ACCOUNT, idempotency.MESSAGES, shared, fingerprint_of(request), response, created_at, username or None
    )
    async with database.transaction() as connection:
        await idempotency.save(connection, [used])


async def test_the_key_and_the_fingerprint_reach_the_coreapp(api: Served, coreapp: FakeCoreapp) -> None:
    await api.http.post("/v1/messages", json=body("message_text"), headers={"Idempotency-Key": "order-4711"})
    await api.http.post("/v1/messages", json=body("message_text"))
    with_key, without = coreapp.requested(core.AcceptMessage)
    assert (with_key.idempotency_key, with_key.fingerprint) == ("order-4711", fingerprint_of(body("message_text")))
    assert (without.idempotency_key, without.fingerprint) == ("", b"")


async def test_field_order_and_spacing_do_not_change_the_fingerprint(api: Served, coreapp: FakeCoreapp) -> None:
    given = body("message_text")
    turned = json.dumps(dict(reversed(given.items())), indent=4)
    for content in (json.dumps(given), turned):
        await api.http.post("/v1/messages", content=content, headers={"Idempotency-Key": "k"})
    one, other = coreapp.requested(core.AcceptMessage)
    assert one.fingerprint == other.fingerprint
    assert fingerprint_of({**given, "to": "15550110002"}) != one.fingerprint


async def test_a_repeated_request_succeeds_even_without_its_template(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    await api.http.post("/v1/configs/templates", json=TEMPLATE)
    headers = {"Idempotency-Key": "k"}
    first = await api.http.post("/v1/messages", json=SENDING, headers=headers)
    [request] = coreapp.requested(core.AcceptMessage)
    now = 2**50
    await remember(database, "k", SENDING, first.json()["messages"][0]["id"], now)
    await api.http.delete("/v1/configs/templates/plain")
    again = await api.http.post("/v1/messages", json=SENDING, headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert coreapp.requested(core.AcceptMessage) == [request]


async def test_a_repeated_request_succeeds_even_without_its_file(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    refused = await api.http.post("/v1/messages", json=IMAGE, headers=KEY)
    assert code(refused) == (404, 1006)
    await remember(database, "k", IMAGE, "gBEG1", 2**50)
    again = await api.http.post("/v1/messages", json=IMAGE, headers=KEY)
    assert (again.status_code, again.json()["messages"]) == (201, [{"id": "gBEG1"}])
    assert not coreapp.requests


async def test_a_refused_body_under_a_used_key_gets_422(api: Served, coreapp: FakeCoreapp, database: Database) -> None:
    await remember(database, "k", body("message_text"), "gBEG1", 2**50)
    response = await api.http.post("/v1/messages", json=SENDING, headers=KEY)
    assert code(response) == (422, 1009)
    assert errors(response)[0]["details"] == "Idempotency-Key: was used for a different request"
    assert not coreapp.requests


async def test_the_key_of_another_user_is_not_used(api: Served, coreapp: FakeCoreapp, database: Database) -> None:
    await remember(database, "k", SENDING, "gBEG1", 2**50, username="observer")
    assert code(await api.http.post("/v1/messages", json=SENDING, headers=KEY)) == (404, 2001)
    await api.send()
    assert [request.username for request in coreapp.requested(core.AcceptMessage)] == [""]


async def test_a_key_stored_by_the_previous_release_is_found(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    await remember(database, "k", SENDING, "gBEG1", 2**50, username="")
    again = await api.http.post("/v1/messages", json=SENDING, headers=KEY)
    assert (again.status_code, again.json()["messages"]) == (201, [{"id": "gBEG1"}])


async def test_a_message_with_a_fresh_key_needs_no_database_query(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    await api.send()
    with statements.sent() as noted:
        responses = [
            await api.http.post("/v1/messages", json=body("message_text"), headers={"Idempotency-Key": f"fresh-{n}"})
            for n in range(10)
        ]
    assert [response.status_code for response in responses] == [201] * 10
    assert [request.username for request in coreapp.requested(core.AcceptMessage)][1:] == ["admin"] * 10
    assert noted == []


async def test_key_queries_of_refused_messages_are_batched(api: Served) -> None:
    with statements.recorded("idempotency_keys") as noted:
        responses = await asyncio.gather(
            *(api.http.post("/v1/messages", json=IMAGE, headers={"Idempotency-Key": f"k{n}"}) for n in range(40))
        )
    assert {code(response) for response in responses} == {(404, 1006)}
    assert 1 <= len(noted) <= 10


async def test_a_key_can_be_used_again_after_two_days(api: Served, coreapp: FakeCoreapp, database: Database) -> None:
    await remember(database, "k", {}, "gBEG1", 1)
    assert (await api.http.post("/v1/messages", json=body("message_text"), headers=KEY)).status_code == 201
    assert coreapp.requested(core.AcceptMessage)


@pytest.mark.parametrize(("in_progress", "status", "number"), [(True, 409, 1025), (False, 422, 1009)])
async def test_a_key_taken_at_the_coreapp_gets_409_or_422(
    api: Served, coreapp: FakeCoreapp, in_progress: bool, status: int, number: int
) -> None:
    coreapp.respond(core.AcceptMessage, lambda q: core.KeyTaken(q.n, in_progress))
    response = await api.http.post("/v1/messages", json=body("message_text"), headers=KEY)
    assert code(response) == (status, number)
    assert response.headers.get("Retry-After") == ("1" if in_progress else None)


@pytest.mark.parametrize("key", ["", " ", "a b", "ü", "x" * 256])
async def test_an_invalid_key_is_refused(api: Served, coreapp: FakeCoreapp, key: str) -> None:
    headers = [(b"Idempotency-Key", key.encode())]
    response = await api.http.post("/v1/messages", json=body("message_text"), headers=[*api.http.headers.raw, *headers])
    assert code(response) == (400, 1009)
    assert errors(response)[0]["details"].startswith("Idempotency-Key: ")
    assert not coreapp.requests


KEY = {"Idempotency-Key": "k"}
