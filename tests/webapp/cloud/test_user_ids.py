"""Messages to users by their ids (BSUID), which webhooks have named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.cloud.conftest import NUMBER, Cloud, details, error
from tests.webapp.conftest import Serve
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.test_numbers import FIRST, SECOND, add_number, first_log_in, second
from tidings.storage.business import cloud_users
from tidings.storage.business.cloud_users import CloudUser
from tidings.storage.database import Database
from tidings.wire import core
from tidings.wire.cloud import wamid
from tidings.wire.cloud.identity import derive

ID = "gBEG0VbtnydAJRrmtg5BGV4raEP"
KNOWN, NAMED, OTHERS = "US.13491208655302741918", "US.94226387308222579376", "US.25905447872102388282"
PEERS = {KNOWN: "15550110001", NAMED: "15550370007"}
OTP = {
    "name": "code",
    "language": "en_US",
    "category": "AUTHENTICATION",
    "components": [{"type": "BODY"}, {"type": "BUTTONS", "buttons": [{"type": "OTP", "otp_type": "COPY_CODE"}]}],
}


@pytest.fixture
async def users(serve: Serve, coreapp: FakeCoreapp, database: Database) -> Cloud:
    """Webapp whose first number has named two users, and another number a third one."""
    coreapp.respond(core.AcceptMessage, lambda q: core.Accepted(n=q.n, id=ID, wa_id=q.to))
    served = await serve(cloud_api=True, cloud_user_ids=True)
    await served.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    async with database.transaction() as connection:
        rows = [CloudUser("15550000000", user_id, peer) for user_id, peer in PEERS.items()]
        await cloud_users.add(connection, [*rows, CloudUser(SECOND, OTHERS, "15550110003")])
    return Cloud(served, served.http)


@pytest.mark.parametrize("user_id", [KNOWN, NAMED])
@pytest.mark.parametrize("field", ["recipient", "to"])
async def test_a_message_reaches_the_number_of_the_user(
    users: Cloud, coreapp: FakeCoreapp, field: str, user_id: str
) -> None:
    fields: dict[str, Any] = {"to": ..., field: user_id}
    response = await users.send(**fields)
    assert response.status_code == 200, response.text
    visible = "" if user_id == NAMED else PEERS[user_id]
    assert response.json() == {
        "messaging_product": "whatsapp",
        "contacts": [{"input": user_id, "user_id": user_id}],
        "messages": [{"id": wamid.encode(ID, visible)}],
    }
    [request] = coreapp.requested(core.AcceptMessage)
    assert request.to == PEERS[user_id]


async def test_a_number_has_precedence_over_an_id(users: Cloud, coreapp: FakeCoreapp) -> None:
    for recipient in (KNOWN, OTHERS, "nonsense", 7, None):
        response = await users.send(to="15550110002", recipient=recipient)
        assert response.json()["contacts"] == [{"input": "15550110002", "wa_id": "15550110002"}]
    assert {request.to for request in coreapp.requested(core.AcceptMessage)} == {"15550110002"}


async def test_the_id_of_a_message_does_not_contain_the_number_of_a_user_name(users: Cloud) -> None:
    response = await users.send(to="15550370007")
    assert response.json()["contacts"] == [{"input": "15550370007", "wa_id": "15550370007"}]
    assert response.json()["messages"] == [{"id": wamid.encode(ID, "")}]
    reply = await users.send(context={"message_id": wamid.encode("in-1", "", by_recipient=True)})
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"recipient": OTHERS}, 131062),
        ({"to": OTHERS}, 131062),
        ({"recipient": "US.1"}, 131062),
        ({"recipient": "15550110001"}, 131009),
        ({"recipient": "US.é"}, 131009),
        ({"recipient": ""}, 131009),
        ({"recipient": 7}, 131009),
        ({"recipient": [KNOWN]}, 131009),
        ({"recipient": None}, 100),
        ({}, 100),
    ],
)
async def test_an_unusable_id_is_refused(users: Cloud, coreapp: FakeCoreapp, fields: dict[str, Any], code: int) -> None:
    response = await users.send(**{"to": ..., **fields})
    assert error(response)[:2] == (400, code)
    assert code != 131062 or "is not the id of a user in this portfolio" in details(response)
    assert not coreapp.requested(core.AcceptMessage)


async def test_an_id_belongs_to_one_number(users: Cloud, database: Database, coreapp: FakeCoreapp) -> None:
    headers = await second(users.served, database)
    other = users.served.parts.numbers
    assert other.block_of(SECOND) == 1
    message = {"messaging_product": "whatsapp", "recipient": OTHERS, "text": {"body": "Hello"}}
    sent = await users.http.post("/v25.0/1497702026252175/messages", json=message, headers=headers)
    assert sent.status_code == 200, sent.text
    refused = await users.http.post(f"/v25.0/{NUMBER}/messages", json=message)
    assert error(refused)[1] == 131062
    assert [request.to for request in coreapp.requested(core.AcceptMessage)] == ["15550110003"]


async def test_numbers_of_one_waba_have_the_same_users(users: Cloud, database: Database, coreapp: FakeCoreapp) -> None:
    third = "15550000002"
    await add_number(database, third, waba_of=FIRST)
    await users.served.parts.numbers.poll()
    headers = await first_log_in(users.served, third)
    message = {"messaging_product": "whatsapp", "recipient": KNOWN, "text": {"body": "Hello"}}
    phone_number_id = derive(third).phone_number_id
    sent = await users.http.post(f"/v25.0/{phone_number_id}/messages", json=message, headers=headers)
    assert sent.status_code == 200, sent.text
    unknown = await users.http.post(
        f"/v25.0/{phone_number_id}/messages", json={**message, "recipient": OTHERS}, headers=headers
    )
    assert error(unknown)[1] == 131062
    [request] = coreapp.requested(core.AcceptMessage)
    assert (request.account, request.to) == (third, PEERS[KNOWN])


async def test_a_template_with_a_one_time_password_needs_a_number(users: Cloud, coreapp: FakeCoreapp) -> None:
    made = await users.http.post("/v1/configs/templates", json=OTP)
    assert made.status_code == 201, made.text
    parameter = {"type": "text", "text": "123456"}
    template = {
        "name": "code",
        "language": {"code": "en_US"},
        "components": [
            {"type": "body", "parameters": [parameter]},
            {"type": "button", "sub_type": "url", "index": "0", "parameters": [parameter]},
        ],
    }
    refused = await users.send(type="template", text=..., to=..., recipient=KNOWN, template=template)
    assert error(refused)[:2] == (400, 131062)
    assert "one-time passwords" in details(refused)
    unknown = await users.send(type="template", text=..., to=..., recipient=KNOWN, template={**template, "name": "x"})
    assert error(unknown)[:2] == (404, 132001)
    sent = await users.send(type="template", text=..., template=template)
    assert sent.status_code == 200, sent.text


async def test_without_the_setting_an_id_is_no_recipient(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    assert error(await cloud.send(to=..., recipient=KNOWN)) == (400, 100, "(#100) The parameter to is required.")
    assert error(await cloud.send(to=KNOWN))[:2] == (400, 131009)
    response = await cloud.send(to="15550370007", recipient=KNOWN)
    assert response.json()["messages"][0]["id"].startswith("wamid.HBgLMTU1NTAzNzAwMDcV")
    [request] = coreapp.requested(core.AcceptMessage)
    assert request.to == "15550370007"
