"""The OpenAPI document says what the API does."""

from __future__ import annotations

from typing import Any

from tests.webapp.conftest import Served, body

ENDPOINTS = {
    ("get", "/"),
    ("post", "/v1/messages"),
    ("put", "/v1/messages/{message_id}"),
    ("post", "/v1/media"),
    ("get", "/v1/media/{media_id}"),
    ("delete", "/v1/media/{media_id}"),
    ("get", "/v1/configs/templates"),
    ("post", "/v1/configs/templates"),
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
    ("get", "/v1/health"),
    ("get", "/metrics"),
    ("get", "/v1/metrics"),
}


async def document(api: Served) -> dict[str, Any]:
    answer = await api.http.get("/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def test_every_endpoint_is_described_with_its_errors_and_its_security(api: Served) -> None:
    found = await document(api)
    operations = {(method, path): op for path, ops in found["paths"].items() for method, op in ops.items()}
    assert set(operations) == ENDPOINTS
    for operation in operations.values():
        assert operation["security"]
        assert operation["responses"]["4XX"]["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorAnswer")
    assert "201" in operations[("post", "/v1/messages")]["responses"]


async def test_every_reference_leads_somewhere(api: Served) -> None:
    found = await document(api)

    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*(references(value) for value in node.values()))
        return set().union(*(references(value) for value in node)) if isinstance(node, list) else set()

    for reference in references(found):
        assert reference.rpartition("/")[2] in found["components"]["schemas"]


async def test_the_documented_body_of_a_message_is_the_one_that_is_checked(api: Served) -> None:
    schemas = (await document(api))["components"]["schemas"]
    assert {"$ref": "#/components/schemas/TextMessage"} in schemas["Message"]["anyOf"]
    assert len(schemas["Message"]["anyOf"]) == 11
    assert set(body("message_text")) <= set(schemas["TextMessage"]["properties"])
    assert schemas["TextMessage"]["required"] == ["to", "text"]


async def test_the_page_is_served(api: Served) -> None:
    answer = await api.http.get("/docs/")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
