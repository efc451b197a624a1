"""Every type of message: content that reaches the Coreapp for a good one, and the error for each wrong one."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from tests.webapp import message_cases
from tests.webapp.conftest import Served, body, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.business import media
from tidings.storage.business.media import MediaRow
from tidings.storage.database import Database
from tidings.wire import core
from webapp.api.messages import schemas
from webapp.http.errors import InvalidRequest
from webapp.http.openapi.document import AcceptedBooleansSchema

FILES = ["location", "contacts", "interactive", "template", "hsm", "media"]
GOOD = [case for file in FILES for case in message_cases.good(file)]
WRONG = [case for file in FILES for case in message_cases.wrong(file)]
# Also accepted in capitals, which the document does not state.
ALSO_TAKEN = {"picture", "zero tap", "cards without an index", "catalogue"}
OPTIONAL = ["id", "link", "caption", "filename", "text", "title", "description", "mode", "policy", "sub_type", "zip"]


@pytest.fixture
async def ready(api: Served, database: Database) -> Served:
    """Webapp with the templates, files and media providers of the cases."""
    rows = [stored(**entry) for entry in body("media_stored")]
    strange = dataclasses.replace(rows[0], id="00000000-0000-4000-8000-000000000009", account="15550000001")
    async with database.transaction() as connection:
        await media.add_all(connection, [*rows, strange])
    providers = [{"name": "shop", "type": "www", "config": {"bearer": "token"}}]
    response = await api.http.post("/v1/settings/application/media/providers", json=providers)
    assert response.status_code == 200, response.text
    for definition in body("templates_good"):
        response = await api.http.post("/v1/configs/templates", json=definition)
        assert response.status_code == 201, response.text
    return api


def category_of(message: Any) -> str:
    """Return the category of the template that a message uses."""
    kind = message["type"]
    if kind not in ("template", "hsm"):
        return ""
    name = message[kind]["name" if kind == "template" else "element_name"]
    categories: dict[str, str] = {one["name"]: one["category"] for one in body("templates_good")}
    return categories[name]


def stored(**changes: Any) -> MediaRow:
    now = int(time.time() * 1000)
    values = {"account": "15550000000", "sha256": "0" * 64, "file": "0" * 32, "filename": ""}
    return MediaRow(**{**values, "created_at": now, "used_at": now, **changes})


async def test_each_valid_message_reaches_the_coreapp_with_its_content(ready: Served, coreapp: FakeCoreapp) -> None:
    for case in GOOD:
        message, content = case.values
        coreapp.requests.clear()
        response = await ready.http.post("/v1/messages", json=message)
        assert response.status_code == 201, (case.id, response.text)
        [request] = coreapp.requested(core.AcceptMessage)
        assert (request.to, request.kind) == ("15550110001", message["type"]), case.id
        assert json.loads(request.content) == content, case.id
        assert request.category == category_of(message), case.id
        has_file = '"id": "00000000-' in json.dumps(content) or '"link"' in json.dumps(content)
        assert request.has_media == has_file, case.id


async def test_each_invalid_message_is_refused_with_field_and_reason(ready: Served, coreapp: FakeCoreapp) -> None:
    for case in WRONG:
        message, expected, details = case.values
        response = await ready.http.post("/v1/messages", json=message)
        status = 404 if expected in (1006, 2001) else 400
        assert code(response) == (status, expected), (case.id, response.text)
        assert details in [error["details"][: len(details)] for error in errors(response)], (case.id, response.text)
    assert not coreapp.requests


def test_the_openapi_document_defines_which_strings_may_be_empty() -> None:
    described = {
        kind: jsonschema_rs.Draft202012Validator(
            model.model_json_schema(schema_generator=AcceptedBooleansSchema), validate_formats=True
        )
        for kind, model in schemas.MODELS.items()
    }
    tried = 0
    for case in GOOD:
        message = case.values[0]
        if case.id in ALSO_TAKEN:
            continue
        for changed in _with_one_empty(message):
            try:
                schemas.read(changed)
                problem = ""
            except InvalidRequest as error:
                problem = str(error)
            if "which several sections need" not in problem:
                assert described[message["type"]].is_valid(changed) == (not problem), (case.id, changed, problem)
                tried += 1
    assert tried > 1000


def _with_one_empty(message: Any) -> Iterator[Any]:
    """Yield the message with one of its strings emptied, or with an empty optional string added."""

    def visit(node: Any) -> Iterator[Any]:
        if isinstance(node, dict):
            for key in [*node, *(name for name in OPTIONAL if name not in node)]:
                if isinstance(node.get(key, ""), str):
                    yield {**node, key: ""}
                else:
                    yield from ({**node, key: inner} for inner in visit(node[key]))
        elif isinstance(node, list):
            for index, entry in enumerate(node):
                yield from ([*node[:index], inner, *node[index + 1 :]] for inner in visit(entry))

    # An empty `to` is checked at another stage, after it is known whether the recipient is a group.
    yield from (changed for changed in visit(message) if changed["to"])


async def test_only_the_content_named_by_the_type_is_checked(api: Served, coreapp: FakeCoreapp) -> None:
    response = await api.send(image=5, template="x", components=[], interactive={})
    assert response.status_code == 201, response.text


async def test_marking_a_message_as_read_calls_the_coreapp_and_returns_meta(api: Served, coreapp: FakeCoreapp) -> None:
    for path in ("ABGGFlA5FpafAgo6tHcNmNjXmuSf", "ABGG%2F5+A%3D", "a/b/c"):
        response = await api.http.put(f"/v1/messages/{path}", json={"status": "read"})
        assert (response.status_code, set(response.json())) == (200, {"meta"}), response.text
    marked = [request.id for request in coreapp.requested(core.MarkRead)]
    assert marked == ["ABGGFlA5FpafAgo6tHcNmNjXmuSf", "ABGG/5+A=", "a/b/c"]


async def test_marking_an_unknown_message_as_read_gets_404(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.MarkRead, 1006, "unknown message")
    assert code(await api.http.put("/v1/messages/x", json={"status": "read"})) == (404, 1006)
    for path in ("x" * 65, "%00", "%C3%BC"):
        assert code(await api.http.put(f"/v1/messages/{path}", json={"status": "read"})) == (404, 1006)
    assert [request.id for request in coreapp.requested(core.MarkRead)] == ["x"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [({}, 1008), ({"status": "delivered"}, 1009), ({"status": None}, 1009), ({"status": 5}, 1009), ([], 1009)],
)
async def test_the_only_accepted_status_is_read(api: Served, coreapp: FakeCoreapp, content: Any, expected: int) -> None:
    response = await api.http.put("/v1/messages/x", json=content)
    assert code(response) == (400, expected)
    assert not coreapp.requests


@pytest.mark.parametrize("message_id", ["ABGG//5A", "ABGG5A/", "/ABGG5A"])
async def test_marking_a_message_whose_id_has_slashes_at_any_place(
    api: Served, coreapp: FakeCoreapp, message_id: str
) -> None:
    response = await api.http.put(f"/v1/messages/{message_id.replace('/', '%2F')}", json={"status": "read"})
    assert response.status_code == 200, response.text
    assert [request.id for request in coreapp.requested(core.MarkRead)] == [message_id]
