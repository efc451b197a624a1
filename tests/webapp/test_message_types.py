"""Every type of message: what reaches the Coreapp of a good one, and what each wrong one is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.webapp import message_cases
from tests.webapp.conftest import Served, body, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.wire import core
from webapp import bodies
from webapp.errors import FixRequest
from webapp.messages import schemas

FILES = ["location", "contacts", "interactive", "template", "hsm"]
GOOD = [case for file in FILES for case in message_cases.good(file)]
WRONG = [case for file in FILES for case in message_cases.wrong(file)]


@pytest.fixture
async def ready(api: Served) -> Served:
    """With the templates that the cases are about."""
    for definition in body("templates_good"):
        answer = await api.http.post("/v1/configs/templates", json=definition)
        assert answer.status_code == 201, answer.text
    return api


@pytest.mark.parametrize(("message", "content"), GOOD)
async def test_a_good_message_reaches_the_coreapp_as_its_content(
    ready: Served, coreapp: FakeCoreapp, message: Any, content: Any
) -> None:
    answer = await ready.http.post("/v1/messages", json=message)
    assert answer.status_code == 201, answer.text
    [question] = coreapp.asked(core.AcceptMessage)
    assert (question.to, question.kind) == ("15550110001", message["type"])
    assert json.loads(question.content) == content


async def test_each_wrong_message_is_told_its_field_and_reason(ready: Served, coreapp: FakeCoreapp) -> None:
    for case in WRONG:
        message, expected, details = case.values
        answer = await ready.http.post("/v1/messages", json=message)
        status = 404 if expected == 2001 else 400
        assert code(answer) == (status, expected), (case.id, answer.text)
        assert details in [error["details"][: len(details)] for error in errors(answer)], (case.id, answer.text)
    assert not coreapp.questions


@pytest.mark.parametrize(("message", "content"), message_cases.good("media"))
async def test_files_are_refused_until_something_carries_them_however_good(
    api: Served, message: Any, content: Any
) -> None:
    answer = await api.http.post("/v1/messages", json=message)
    assert code(answer) == (400, 1009)
    assert errors(answer)[0]["details"] == "type: not supported yet"
    model = schemas.MODELS[message["type"]]
    checked = bodies.check(model, message).model_dump(exclude_none=True)[message["type"]]
    assert checked == content


@pytest.mark.parametrize(("message", "expected", "details"), message_cases.wrong("media"))
def test_the_contents_of_files_are_checked(message: Any, expected: int, details: str) -> None:
    with pytest.raises(FixRequest) as caught:
        bodies.check(schemas.MODELS[message["type"]], message)
    assert caught.value.problems[0].code == expected
    assert caught.value.problems[0].details.startswith(details)


async def test_only_the_content_that_the_type_names_is_looked_at(api: Served, coreapp: FakeCoreapp) -> None:
    answer = await api.send(image=5, template="x", components=[], interactive={})
    assert answer.status_code == 201, answer.text


async def test_a_read_mark_is_asked_of_the_coreapp_and_answered_with_meta(api: Served, coreapp: FakeCoreapp) -> None:
    for path in ("ABGGFlA5FpafAgo6tHcNmNjXmuSf", "ABGG%2F5+A%3D", "a/b/c"):
        answer = await api.http.put(f"/v1/messages/{path}", json={"status": "read"})
        assert (answer.status_code, set(answer.json())) == (200, {"meta"}), answer.text
    marked = [question.id for question in coreapp.asked(core.MarkRead)]
    assert marked == ["ABGGFlA5FpafAgo6tHcNmNjXmuSf", "ABGG/5+A=", "a/b/c"]


async def test_a_message_that_nobody_sent_cannot_be_marked(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.MarkRead, 1006, "unknown message")
    assert code(await api.http.put("/v1/messages/x", json={"status": "read"})) == (404, 1006)
    for path in ("x" * 65, "%00", "%C3%BC"):
        assert code(await api.http.put(f"/v1/messages/{path}", json={"status": "read"})) == (404, 1006)
    assert [question.id for question in coreapp.asked(core.MarkRead)] == ["x"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [({}, 1008), ({"status": "delivered"}, 1009), ({"status": None}, 1009), ({"status": 5}, 1009), ([], 1009)],
)
async def test_read_is_all_that_a_message_can_be_marked(
    api: Served, coreapp: FakeCoreapp, content: Any, expected: int
) -> None:
    answer = await api.http.put("/v1/messages/x", json=content)
    assert code(answer) == (400, expected)
    assert not coreapp.questions
