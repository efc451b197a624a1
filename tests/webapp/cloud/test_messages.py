"""`POST /{phone-number-id}/messages`: the content that reaches the Coreapp, responses and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.webapp.cloud.conftest import NUMBER, Cloud, check_headers, details, error, recorded
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.wire import core
from tidings.wire.cloud import wamid

ID = "gBEG0VbtnydAJRrmtg5BGV4raEP"
PATH = f"/v25.0/{NUMBER}/messages"
TEMPLATE = {
    "name": "order",
    "language": "en_US",
    "category": "UTILITY",
    "components": [{"type": "BODY", "text": "Hello {{1}}, {{2}} and {{3}}."}],
}


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in recorded("messages")])
async def test_each_type_reaches_the_coreapp_with_its_content(
    cloud: Cloud, coreapp: FakeCoreapp, case: dict[str, Any]
) -> None:
    coreapp.respond(core.AcceptMessage, lambda q: core.Accepted(n=q.n, id=ID, wa_id=q.to))
    response = await cloud.http.post(PATH, json=case["body"])
    identifier = wamid.encode(ID, "15550110001")
    written = identifier.replace("/", "\\/")
    assert response.status_code == 200, response.text
    assert response.text == (
        '{"messaging_product":"whatsapp","contacts":[{"input":"' + case["input"] + '","wa_id":"15550110001"}],'
        '"messages":[{"id":"' + written + '"}]}'
    )
    check_headers(response)
    [request] = coreapp.requested(core.AcceptMessage)
    assert (request.account, request.to, request.kind) == ("15550000000", "15550110001", case["content"]["type"])
    assert json.loads(request.content) == case["content"]
    assert request.checked_late


async def test_a_reply_and_a_reaction_name_our_own_ids(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    theirs = wamid.encode("3EB0ABC", "15550110001", by_recipient=True)
    await cloud.send(context={"message_id": theirs})
    assert (await cloud.send(type="reaction", text=..., reaction={"message_id": theirs, "emoji": "👍"})).is_success
    assert (await cloud.send(type="reaction", text=..., reaction={"message_id": theirs})).is_success
    contents = [json.loads(request.content) for request in coreapp.requested(core.AcceptMessage)]
    assert contents == [
        {"type": "text", "text": {"body": "Hello"}, "context": {"id": "3EB0ABC"}},
        {"type": "reaction", "reaction": {"message_id": "3EB0ABC", "emoji": "👍"}},
        {"type": "reaction", "reaction": {"message_id": "3EB0ABC", "emoji": ""}},
    ]


async def test_a_reply_may_name_a_message_of_another_server(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    foreign = "wamid.HBgLMTU1NTAxMTAwMDEVAgARGBI5QTNDQTVCM0Q0Q0Q2RTY3RTcA"
    assert (await cloud.send(context={"message_id": foreign})).is_success
    reaction = {"message_id": foreign, "emoji": "👍"}
    assert (await cloud.send(type="reaction", text=..., reaction=reaction)).is_success
    contents = [json.loads(request.content) for request in coreapp.requested(core.AcceptMessage)]
    assert [contents[0]["context"]["id"], contents[1]["reaction"]["message_id"]] == ["9A3CA5B3D4CD6E67E7"] * 2


async def test_callback_data_and_the_identity_hash_reach_the_coreapp(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    await cloud.send(biz_opaque_callback_data="order 7", recipient_identity_key_hash="Sjvjlx8G6Z0=")
    [request] = coreapp.requested(core.AcceptMessage)
    assert (request.callback_data, request.identity_hash) == ("order 7", "Sjvjlx8G6Z0=")
    response = await cloud.send(biz_opaque_callback_data="x" * 513)
    assert error(response)[:2] == (400, 131009)


LEFT_OUT = ("order_details", "order_status", "address_message", "call_permission_request", "voice_call")


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"messaging_product": ...}, 100, "(#100) The parameter messaging_product is required."),
        (
            {"messaging_product": "telegram"},
            100,
            '(#100) Param messaging_product must be one of {WHATSAPP} - got "telegram".',
        ),
        ({"to": ...}, 100, "(#100) The parameter to is required."),
        ({"to": "abc"}, 131009, "(#131009) Parameter value is not valid"),
        ({"text": ...}, 100, "(#100) The parameter text is required."),
        ({"text": {}}, 131008, "(#131008) Required parameter is missing"),
        ({"text": {"body": "x" * 4097}}, 100, "(#100) Invalid parameter"),
        ({"recipient_type": "group"}, 3, None),
        ({"type": "pin", "pin": {}}, 3, None),
        *(({"type": "interactive", "interactive": {"type": kind}}, 3, None) for kind in LEFT_OUT),
        ({"type": "interactive", "interactive": {"type": "other"}}, 131009, None),
        ({"type": "interactive", "interactive": "x"}, 131009, None),
        ({"type": "hsm"}, 100, None),
        ({"type": 7}, 100, None),
        ({"context": {"message_id": "wamid.xyz"}}, 131009, "(#131009) Parameter value is not valid"),
        ({"type": "image", "image": {"id": "1234567890123456789"}}, 100, "(#100) Invalid parameter"),
    ],
)
async def test_an_invalid_message_is_refused(
    cloud: Cloud, coreapp: FakeCoreapp, fields: dict[str, Any], code: int, message: str | None
) -> None:
    response = await cloud.send(**fields)
    status, given, words = error(response)
    assert (status, given) == (400, code)
    assert message is None or words == message
    assert not coreapp.requested(core.AcceptMessage)


async def test_a_template_is_checked_against_the_numbers_templates(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    made = await cloud.http.post("/v1/configs/templates", json=TEMPLATE)
    assert made.status_code == 201, made.text

    async def send(count: int, **changes: Any) -> Any:
        parameters = [{"type": "TEXT", "text": f"p{n}"} for n in range(count)]
        template = {
            "namespace": "ignored",
            "name": "order",
            "language": {"code": "en_US", "policy": "deterministic"},
            "components": [{"type": "body", "parameters": parameters}],
            **changes,
        }
        return await cloud.send(type="template", text=..., template=template)

    response = await send(3)
    assert response.json()["messages"][0]["message_status"] == "accepted"
    [request] = coreapp.requested(core.AcceptMessage)
    assert json.loads(request.content)["template"]["filled"]["body"] == "Hello p0, p1 and p2."
    assert request.category == "UTILITY"
    response = await send(1)
    assert error(response)[:2] == (400, 132000)
    assert details(response) == (
        "body: number of localizable_params (1) does not match the expected number of params (3)"
    )
    response = await send(3, name="x")
    assert error(response) == (404, 132001, "(#132001) Template name does not exist in the translation")
    assert details(response) == "template name (x) does not exist in en_US"


@pytest.mark.parametrize(("status", "http", "code"), [("PAUSED", 400, 132015), ("DISABLED", 400, 132016)])
async def test_a_template_that_may_not_be_sent_is_refused(cloud: Cloud, status: str, http: int, code: int) -> None:
    await cloud.http.post("/v1/configs/templates", json={**TEMPLATE, "status": status})
    template = {"name": "order", "language": {"code": "en_US"}}
    response = await cloud.send(type="template", text=..., template=template)
    assert error(response)[:2] == (http, code)


async def test_a_format_that_does_not_fit_is_132012(cloud: Cloud) -> None:
    await cloud.http.post(
        "/v1/configs/templates",
        json={
            **TEMPLATE,
            "components": [{"type": "HEADER", "format": "IMAGE"}, {"type": "BODY", "text": "Hi"}],
        },
    )
    components = [{"type": "header", "parameters": [{"type": "text", "text": "no image"}]}]
    template = {"name": "order", "language": {"code": "en_US"}, "components": components}
    response = await cloud.send(type="template", text=..., template=template)
    assert error(response)[:2] == (400, 132012)


async def test_a_received_message_is_marked_as_read(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    theirs = wamid.encode("3EB0ABC", "15550110001", by_recipient=True)
    mark = {"messaging_product": "whatsapp", "status": "read", "message_id": theirs}
    for body in (mark, {**mark, "typing_indicator": {"type": "text"}}):
        response = await cloud.http.post(PATH, json=body)
        assert (response.status_code, response.text) == (200, '{"success":true}')
    marks = coreapp.requested(core.MarkRead)
    assert [(request.id, request.typing) for request in marks] == [("3EB0ABC", False), ("3EB0ABC", True)]


@pytest.mark.parametrize(("indicator", "code"), [("text", 131008), ({}, 131008), ({"type": "audio"}, 100)])
async def test_a_typing_indicator_of_another_type_is_refused(
    cloud: Cloud, coreapp: FakeCoreapp, indicator: object, code: int
) -> None:
    theirs = wamid.encode("3EB0ABC", "15550110001", by_recipient=True)
    mark = {"messaging_product": "whatsapp", "status": "read", "message_id": theirs, "typing_indicator": indicator}
    assert error(await cloud.http.post(PATH, json=mark))[:2] == (400, code)
    assert not coreapp.requested(core.MarkRead)


async def test_a_mark_of_v1_shows_no_indicator(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    body = {"status": "read", "typing_indicator": {"type": "text"}}
    assert (await cloud.http.put("/v1/messages/3EB0ABC", json=body)).status_code in (200, 400)
    assert not any(request.typing for request in coreapp.requested(core.MarkRead))


async def test_a_mark_of_an_unusable_id_is_refused(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.MarkRead, 1006, "unknown message")
    ours = wamid.encode(ID, "15550110001")
    theirs = wamid.encode(ID, "15550110001", by_recipient=True)
    expected = {
        "wamid.nonsense": "Please check the message ID you have provided.",
        theirs: "Please check the message ID you have provided.",
        ours: (
            f"Message supplied to mark message as read API with message ID: {ours} is outgoing. Please use an incoming "
            "message ID."
        ),
    }
    for message_id, why in expected.items():
        body = {"messaging_product": "whatsapp", "status": "read", "message_id": message_id}
        response = await cloud.http.post(PATH, json=body)
        assert error(response) == (400, 100, "(#100) Invalid parameter")
        assert details(response) == why


async def test_v1_still_refuses_what_only_the_cloud_api_has(cloud: Cloud) -> None:
    for fields in (
        {"type": "reaction", "reaction": {"message_id": "x", "emoji": "y"}},
        {"biz_opaque_callback_data": "x"},
    ):
        assert (await cloud.served.send(**fields)).status_code == 400
