"""`POST /tidings/webhooks`: the Coreapp of the caller's number queues a webhook of the Cloud API."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.webapp.conftest import Serve, Served, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.wire import codes, core
from webapp.api.testing.webhooks import FIELDS

PATH, NUMBER = "/tidings/webhooks", "15550000000"
VALUE = {"event": "ACCOUNT_VIOLATION", "violation_info": {"violation_type": "ADULT \u2713"}}


@pytest.fixture
async def served(serve: Serve, coreapp: FakeCoreapp) -> Served:
    """Webapp in test mode, with a Coreapp that queues every webhook."""
    coreapp.respond(core.QueueWebhook, lambda request: core.Done(request.n))
    found = await serve(cloud_api=True, testing=True)
    await found.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    return found


async def test_a_webhook_of_each_field_is_queued_for_the_number_of_the_token(
    served: Served, coreapp: FakeCoreapp
) -> None:
    made = [await served.http.post(PATH, json={"field": field, "value": VALUE}) for field in FIELDS]
    assert {response.status_code for response in made} == {202}
    events = [response.json()["webhooks"][0]["id"] for response in made]
    assert all(re.fullmatch("evt_[0-9a-f]{32}", event) for event in events)
    assert len(set(events)) == len(FIELDS)
    requested = coreapp.requested(core.QueueWebhook)
    assert [(request.account, request.field, request.event) for request in requested] == [
        (NUMBER, field, event) for field, event in zip(FIELDS, events, strict=True)
    ]
    assert all(json.loads(request.value) == VALUE for request in requested)


def test_fields_of_messages_are_sent_as_a_recipient_instead() -> None:
    assert "messages" not in FIELDS
    assert {"account_alerts", "account_review_update", "account_update", "security", "user_preferences"} <= {*FIELDS}


@pytest.mark.parametrize(
    ("body", "problem", "words"),
    [
        ({}, codes.PARAMETER_MISSING, "field: is missing"),
        ({"field": "account_update"}, codes.PARAMETER_MISSING, "value: is missing"),
        ({"field": "nothing", "value": {}}, codes.PARAMETER_INVALID, "field: should be one of account_alerts, "),
        ({"field": "messages", "value": {}}, codes.PARAMETER_INVALID, "field: should be one of account_alerts, "),
        ({"field": 1, "value": {}}, codes.PARAMETER_INVALID, "field: should be a string"),
        ({"field": "security", "value": []}, codes.PARAMETER_INVALID, "value: should be a JSON object"),
        ({"field": "security", "value": None}, codes.PARAMETER_INVALID, "value: should be a JSON object"),
        ({"field": "security", "value": {}, "time": 1}, codes.PARAMETER_INVALID, "time: "),
        ([], codes.PARAMETER_INVALID, "body: should be a JSON object"),
    ],
)
async def test_a_wrong_webhook_is_refused(
    served: Served, coreapp: FakeCoreapp, body: Any, problem: int, words: str
) -> None:
    response = await served.http.post(PATH, json=body)
    assert code(response) == (400, problem)
    assert errors(response)[0]["details"].startswith(words)
    assert coreapp.requested(core.QueueWebhook) == []


async def test_a_refusal_of_the_coreapp_is_reported(served: Served, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.QueueWebhook, codes.PARAMETER_INVALID, "field: the reason")
    response = await served.http.post(PATH, json={"field": "security", "value": {}})
    assert code(response) == (400, codes.PARAMETER_INVALID)
    assert errors(response)[0]["details"] == "field: the reason"


async def test_a_coreapp_of_an_earlier_release_gets_no_webhook_and_keeps_its_connection(
    serve: Serve, coreapp: FakeCoreapp
) -> None:
    coreapp.version = 4
    found = await serve(cloud_api=True, testing=True)
    await found.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    connections = set(coreapp.connections)
    response = await found.http.post(PATH, json={"field": "security", "value": {}})
    assert code(response) == (503, codes.NOT_READY)
    assert "has an earlier release" in errors(response)[0]["details"]
    assert coreapp.requested(core.QueueWebhook) == []
    assert coreapp.connections == connections
