"""The OpenAPI document describes what the API does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema

from tests.webapp.conftest import Served, basic, body, code
from webapp.http.openapi import links as openapi_links

ENDPOINTS = {
    ("get", "/"),
    ("get", "/health/live"),
    ("get", "/health/ready"),
    ("post", "/v1/messages"),
    ("put", "/v1/messages/{message_id}"),
    ("post", "/v1/media"),
    ("get", "/v1/media/{media_id}"),
    ("delete", "/v1/media/{media_id}"),
    ("get", "/v1/configs/templates"),
    ("post", "/v1/configs/templates"),
    ("post", "/v1/configs/templates/import"),
    ("patch", "/v1/configs/templates/{name}"),
    ("delete", "/v1/configs/templates/{name}"),
    ("post", "/v1/contacts"),
    ("get", "/v1/contacts/{wa_id}/identity"),
    ("put", "/v1/contacts/{wa_id}/identity"),
    ("post", "/v1/users/login"),
    ("post", "/v1/users/logout"),
    ("get", "/v1/settings/application"),
    ("patch", "/v1/settings/application"),
    ("delete", "/v1/settings/application"),
    ("post", "/v1/users"),
    ("get", "/v1/users"),
    ("get", "/v1/users/{username}"),
    ("put", "/v1/users/{username}"),
    ("delete", "/v1/users/{username}"),
    ("delete", "/v1/users/{username}/tokens"),
    ("post", "/v1/account"),
    ("post", "/v1/account/verify"),
    ("get", "/v1/account/shards"),
    ("post", "/v1/account/shards"),
    ("post", "/v1/settings/account/two-step"),
    ("delete", "/v1/settings/account/two-step"),
    ("get", "/v1/settings/profile/about"),
    ("patch", "/v1/settings/profile/about"),
    ("get", "/v1/settings/profile/photo"),
    ("post", "/v1/settings/profile/photo"),
    ("delete", "/v1/settings/profile/photo"),
    ("get", "/v1/settings/business/profile"),
    ("post", "/v1/settings/business/profile"),
    ("get", "/v1/settings/business/compliance_info"),
    ("post", "/v1/settings/business/compliance_info"),
    ("get", "/v1/settings/business/whatsapp_business_encryption"),
    ("post", "/v1/settings/business/whatsapp_business_encryption"),
    ("post", "/v1/settings/backup"),
    ("post", "/v1/settings/restore"),
    ("get", "/v1/settings/application/media/providers"),
    ("post", "/v1/settings/application/media/providers"),
    ("delete", "/v1/settings/application/media/providers/{name}"),
    ("post", "/v1/certificates/external"),
    ("get", "/v1/certificates/external/ca"),
    ("post", "/v1/certificates/webhooks/ca"),
    ("get", "/v1/certificates/webhooks/ca"),
    ("delete", "/v1/certificates/webhooks/ca"),
    ("get", "/v1/stickerpacks"),
    ("post", "/v1/stickerpacks"),
    ("get", "/v1/stickerpacks/{id}"),
    ("patch", "/v1/stickerpacks/{id}"),
    ("delete", "/v1/stickerpacks/{id}"),
    ("get", "/v1/stickerpacks/{id}/stickers"),
    ("post", "/v1/stickerpacks/{id}/stickers"),
    ("get", "/v1/stickerpacks/{id}/stickers/{index}"),
    ("patch", "/v1/stickerpacks/{id}/stickers/{index}"),
    ("delete", "/v1/stickerpacks/{id}/stickers/{index}"),
    ("get", "/v1/groups"),
    ("post", "/v1/groups"),
    ("get", "/v1/groups/{group_id}"),
    ("put", "/v1/groups/{group_id}"),
    ("patch", "/v1/groups/{group_id}/admins"),
    ("delete", "/v1/groups/{group_id}/admins"),
    ("delete", "/v1/groups/{group_id}/participants"),
    ("get", "/v1/groups/{group_id}/icon"),
    ("post", "/v1/groups/{group_id}/icon"),
    ("delete", "/v1/groups/{group_id}/icon"),
    ("get", "/v1/groups/{group_id}/invite"),
    ("delete", "/v1/groups/{group_id}/invite"),
    ("post", "/v1/groups/{group_id}/leave"),
    ("put", "/v1/services/message/gc"),
    ("put", "/v1/services/media/gc"),
    ("get", "/v1/support"),
    ("get", "/v1/stats"),
    ("get", "/v1/stats/app"),
    ("get", "/v1/stats/db"),
    ("get", "/v1/stats/app/internal"),
    ("get", "/v1/stats/db/internal"),
    ("get", "/v1/health"),
    ("get", "/metrics"),
    ("get", "/v1/metrics"),
}


async def document(api: Served) -> dict[str, Any]:
    response = await api.http.get("/openapi.json")
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


async def test_every_endpoint_is_described_with_errors_and_security(api: Served) -> None:
    found = await document(api)
    operations = {(method, path): op for path, ops in found["paths"].items() for method, op in ops.items()}
    assert set(operations) == ENDPOINTS
    for operation in operations.values():
        assert operation["security"]
        assert operation["responses"]["4XX"]["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorResponse")
    assert "201" in operations[("post", "/v1/messages")]["responses"]


async def test_every_reference_resolves(api: Served) -> None:
    found = await document(api)

    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*(references(value) for value in node.values()))
        return set().union(*(references(value) for value in node)) if isinstance(node, list) else set()

    for reference in references(found):
        assert reference.rpartition("/")[2] in found["components"]["schemas"]


async def test_the_documented_message_body_matches_the_validated_models(api: Served) -> None:
    schemas = (await document(api))["components"]["schemas"]
    assert {"$ref": "#/components/schemas/TextMessage"} in schemas["Message"]["anyOf"]
    assert len(schemas["Message"]["anyOf"]) == 11
    assert set(body("message_text")) <= set(schemas["TextMessage"]["properties"])
    assert schemas["TextMessage"]["required"] == ["to", "text"]


async def test_the_documentation_page_is_served(api: Served) -> None:
    response = await api.http.get("/docs/")
    assert (response.status_code, response.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "script-src 'self'" in response.headers["Content-Security-Policy"]


async def test_the_documentation_page_loads_only_files_of_this_webapp(api: Served) -> None:
    page = (await api.http.get("/docs")).text
    assert "<script>" not in page, "the policy lets no inline script run"
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(loaded) == 4
    for path in loaded:
        response = await api.http.get(path)
        assert response.status_code == 200
        assert len(response.content) > 100
        assert response.headers["X-Content-Type-Options"] == "nosniff"
    bundle = (await api.http.get("/docs/swagger-ui-bundle.js")).text
    assert "SwaggerUIBundle" in bundle
    assert code(await api.http.get("/docs/nothing.js")) == (404, 1006)


def _operations(found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def _contents(operation: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (place, media type, description) for the body and for each response."""
    for where, part in [("body", operation.get("requestBody", {})), *operation["responses"].items()]:
        for kind, media in part.get("content", {}).items():
            yield where, kind, media


async def test_every_json_request_and_response_has_a_valid_example(api: Served) -> None:
    found = await document(api)
    seen = 0
    for name, operation in _operations(found):
        for where, kind, media in _contents(operation):
            if kind != "application/json":
                continue
            schema = {**media["schema"], "components": found["components"]}
            checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
            examples = [media["example"]] if "example" in media else [e["value"] for e in media["examples"].values()]
            for example in examples:
                assert [f"{name} {where}: {error.message}" for error in checker.iter_errors(example)] == []
                seen += 1
    assert seen > 200


async def test_every_schema_is_valid_and_matches_its_examples(api: Served) -> None:
    found = await document(api)

    def schemas(node: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        if isinstance(node, dict):
            if isinstance(node.get("examples"), list):
                yield name, node
            for key, value in node.items():
                if key not in ("examples", "example", "const", "enum", "default"):
                    yield from schemas(value, f"{name}.{key}")
        elif isinstance(node, list):
            for value in node:
                yield from schemas(value, name)

    for name, schema in found["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        for where, part in schemas(schema, name):
            checker = jsonschema.Draft202012Validator({**part, "components": found["components"]})
            for example in part["examples"]:
                assert [f"{where}: {error.message}" for error in checker.iter_errors(example)] == []


async def test_every_operation_documents_its_security_and_responses(api: Served) -> None:
    found = await document(api)
    schemes = found["components"]["securitySchemes"]
    ids = []
    for name, operation in _operations(found):
        ids.append(operation["operationId"])
        assert operation["summary"], name
        assert operation["tags"], name
        for requirement in operation["security"]:
            assert set(requirement) <= set(schemes), name
        assert any(status.startswith("2") for status in operation["responses"]), name
        for status in ("4XX", "5XX"):
            example = operation["responses"][status]["content"]["application/json"]["example"]
            assert set(example) == {"errors", "meta"}, name
        for parameter in operation.get("parameters", ()):
            assert parameter["in"] != "path" or parameter["example"], name
    assert len(set(ids)) == len(ids)


async def test_every_link_names_an_operation_and_fills_its_path(api: Served) -> None:
    found = await document(api)
    by_id = {operation["operationId"]: (name, operation) for name, operation in _operations(found)}
    links = 0
    for _, operation in _operations(found):
        for response in operation["responses"].values():
            for link in response.get("links", {}).values():
                name, target = by_id[link["operationId"]]
                needed = {p["name"] for p in target.get("parameters", ()) if p["in"] == "path"}
                assert set(link.get("parameters", ())) == needed, name
                assert needed or "requestBody" in link
                links += 1
    assert links == len(openapi_links.LINKS)


async def test_creating_operations_have_links_to_the_operations_on_the_result(api: Served) -> None:
    found = await document(api)
    makers = ["/v1/users", "/v1/configs/templates", "/v1/stickerpacks", "/v1/stickerpacks/{id}/stickers", "/v1/groups"]
    for path in makers:
        assert found["paths"][path]["post"]["responses"]["201"]["links"], path
    assert found["paths"]["/v1/media"]["post"]["responses"]["200"]["links"]


async def test_every_operation_without_a_valid_token_gets_401(api: Served) -> None:
    found = await document(api)
    api.http.headers.pop("Authorization")
    for name, operation in _operations(found):
        method, path = name.split()
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path":
                path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
        for headers in ({}, {"Authorization": "Bearer x"}, basic("admin", "wrong")):
            if {} in operation["security"] or (path == "/v1/users/login" and headers):
                continue
            response = await api.http.request(method, path, headers=headers, content=b"{}")
            assert code(response) == (401, 1005), name
