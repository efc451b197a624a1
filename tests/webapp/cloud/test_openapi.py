"""The OpenAPI document of the Cloud API describes each call of the façade."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from tests.media_samples import PNG
from tests.webapp.cloud.conftest import APP, NUMBER, WABA, Cloud, error
from tests.webapp.conftest import Serve
from tests.webapp.fake_coreapp import FakeCoreapp
from webapp.api.cloud import paths
from webapp.api.cloud.endpoints import ENDPOINTS

PATH = "/cloud/openapi.json"
BUSINESS = "4529949791234566"


async def document(cloud: Cloud) -> dict[str, Any]:
    response = await cloud.http.get(PATH)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    found: dict[str, Any] = response.json()
    return found


def _operations(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def filled(path: str) -> str:
    """Return a path of the document with the ids of the default number."""
    ids = {"phone-number-id": NUMBER, "waba-id": WABA, "app-id": APP, "business-id": BUSINESS}
    for name, found in ids.items():
        path = path.replace(f"{{{name}}}", found)
    return "/v25.0" + path.replace("{template-id}", "5000000000000000").replace("{media-id}", "1000000000000000000")


async def test_every_endpoint_is_in_the_document_and_every_reference_resolves(cloud: Cloud) -> None:
    found = await document(cloud)
    operations = list(_operations(found))
    assert len(operations) == len(ENDPOINTS)
    for path, method in (
        ("/{phone-number-id}/messages", "post"),
        ("/{phone-number-id}/media", "post"),
        ("/{media-id}", "delete"),
        ("/{waba-id}/message_templates", "get"),
        ("/{app-id}/subscriptions", "post"),
        ("/debug_token", "get"),
        ("/whatsapp_business/attachments", "get"),
    ):
        assert method in found["paths"][path], path
    for reference in _references(found):
        assert reference.rpartition("/")[2] in found["components"]["schemas"]
    ids = [operation["operationId"] for _, _, operation in operations]
    assert len(set(ids)) == len(ids)
    for name, schema in found["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema, name


@pytest.mark.parametrize(
    ("message", "is_valid"),
    [
        ({"messaging_product": "whatsapp", "to": "15550110001", "text": {"body": "Hello"}}, True),
        ({"messaging_product": "whatsapp", "to": 15550110001, "type": "text", "text": {"body": "Hello"}}, True),
        ({"to": "15550110001", "type": "text", "text": {"body": "Hello"}}, False),
        ({"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.HBgL"}, True),
        (
            {
                "messaging_product": "whatsapp",
                "to": "15550110001",
                "type": "reaction",
                "reaction": {"message_id": "wamid.HBgL", "emoji": ""},
            },
            True,
        ),
        (
            {
                "messaging_product": "whatsapp",
                "to": "15550110001",
                "text": {"body": "Hello"},
                "biz_opaque_callback_data": "x" * 513,
            },
            False,
        ),
    ],
)
async def test_the_body_of_messages_is_described(cloud: Cloud, message: dict[str, Any], is_valid: bool) -> None:
    found = await document(cloud)
    body = found["paths"]["/{phone-number-id}/messages"]["post"]["requestBody"]
    schema = {**body["content"]["application/json"]["schema"], "components": found["components"]}
    assert jsonschema.Draft202012Validator(schema).is_valid(message) == is_valid


async def test_responses_match_their_schemas(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    found = await document(cloud)
    definition = {
        "name": "hello",
        "language": "en_US",
        "category": "UTILITY",
        "components": [{"type": "BODY", "text": "Hello"}],
    }
    created = await cloud.http.post(f"/v25.0/{WABA}/message_templates", json=definition)
    uploaded = await cloud.http.post(
        f"/v25.0/{NUMBER}/media", data={"messaging_product": "whatsapp"}, files={"file": ("a.png", PNG, "image/png")}
    )
    token = cloud.http.headers["Authorization"].split()[1]
    assert (await cloud.http.post(f"/v25.0/{WABA}/subscribed_apps", json={})).status_code == 200
    seen = 0
    for method, path, operation in _operations(found):
        called = filled(path).replace("5000000000000000", created.json()["id"])
        called = called.replace("1000000000000000000", uploaded.json()["id"])
        is_json = "application/json" in operation["responses"]["200"]["content"]
        if method != "GET" or not is_json or operation["summary"].endswith(path):
            # The last are calls that no description tells apart from others.
            continue
        query = {"input_token": token} if path == "/debug_token" else {}
        response = await cloud.http.get(called, params=query)
        assert response.status_code == 200, called
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(response.json(), {**schema, "components": found["components"]})
        seen += 1
    assert seen >= 14
    sent = await cloud.send()
    described = found["paths"]["/{phone-number-id}/messages"]["post"]["responses"]["200"]["content"]
    jsonschema.validate(sent.json(), described["application/json"]["schema"])


async def test_every_call_without_a_token_has_an_error_of_the_documented_format(cloud: Cloud) -> None:
    found = await document(cloud)
    del cloud.http.headers["Authorization"]
    for method, path, operation in _operations(found):
        response = await cloud.http.request(method, filled(path))
        expected = (404, 100) if path == "/whatsapp_business/attachments" else (401, 104)
        assert error(response)[:2] == expected, path
        schema = operation["responses"]["4XX"]["content"]["application/json"]["schema"]
        jsonschema.validate(response.json(), {**schema, "components": found["components"]})


async def test_the_document_has_no_path_of_the_facade_and_is_served_with_it_only(serve: Serve) -> None:
    assert not paths.claims(PATH)
    served = await serve()
    assert (await served.http.get(PATH)).status_code == 404


async def test_the_document_needs_a_token_where_other_machines_reach_the_api(serve: Serve) -> None:
    served = await serve(cloud_api=True, address=("0.0.0.0", 0))
    assert (await served.http.get(PATH)).status_code == 401
    await served.log_in()
    assert (await served.http.get(PATH)).status_code == 200
