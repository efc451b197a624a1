"""200 hostile texts through every string field, query parameter and path of the Cloud API: no 5xx, always its
format.

Fields and parameters are those of this module and those of `/cloud/openapi.json`. `make fuzz` puts all texts into each
of them, `make test` an eighth, which differs from field to field.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.media_samples import PNG
from tests.webapp import string_locations
from tests.webapp.cloud.conftest import APP, NUMBER, WABA, Cloud, check_headers, error, recorded
from tests.webapp.cloud.test_openapi import document, filled
from tests.webapp.payloads import share
from tests.webapp.string_locations import StringLocation, depth, put
from webapp.api.cloud import paths

# Maximum seconds of CPU time per request.
SOON = 2.0
# Numbers of tests that fields and parameters are divided among, so that each takes a few seconds.
PARTS, PARAMETER_PARTS = 5, 2
N, W, A = f"/v25.0/{NUMBER}", f"/v25.0/{WABA}", f"/v25.0/{APP}"

TEMPLATE = {
    "name": "greeting",
    "language": "en_US",
    "category": "MARKETING",
    "parameter_format": "POSITIONAL",
    "components": [
        {"type": "HEADER", "format": "TEXT", "text": "Hello {{1}}", "example": {"header_text": ["Ann"]}},
        {"type": "BODY", "text": "Your code is {{1}}.", "example": {"body_text": [["4711"]]}},
        {"type": "FOOTER", "text": "Bye"},
        {
            "type": "BUTTONS",
            "buttons": [
                {"type": "QUICK_REPLY", "text": "Stop"},
                {"type": "URL", "text": "Shop", "url": "https://example.com/{{1}}", "example": ["a"]},
                {"type": "PHONE_NUMBER", "text": "Call", "phone_number": "+15550140001"},
            ],
        },
    ],
}
SENT_TEMPLATE = {
    "messaging_product": "whatsapp",
    "recipient_type": "individual",
    "to": "15550110001",
    "type": "template",
    "biz_opaque_callback_data": "order",
    "recipient_identity_key_hash": "Sjvjlx8G6Z0=",
    "context": {"message_id": "wamid.HBgLMTU1NTAxMTAwMDEVAgARGBI0"},
    "template": {
        "name": "order",
        "language": {"code": "en_US", "policy": "deterministic"},
        "components": [
            {
                "type": "header",
                "parameters": [{"type": "image", "image": {"id": "1", "link": "https://example.com/a.png"}}],
            },
            {
                "type": "body",
                "parameters": [
                    {"type": "text", "text": "a", "parameter_name": "first"},
                    {"type": "currency", "currency": {"fallback_value": "$1", "code": "USD", "amount_1000": 1000}},
                    {"type": "date_time", "date_time": {"fallback_value": "today"}},
                ],
            },
            {
                "type": "button",
                "sub_type": "quick_reply",
                "index": "0",
                "parameters": [{"type": "payload", "payload": "p"}],
            },
        ],
    },
}
READ = {
    "messaging_product": "whatsapp",
    "status": "read",
    "message_id": "wamid.x",
    "typing_indicator": {"type": "text"},
}
REACTION = {
    "messaging_product": "whatsapp",
    "to": "15550110001",
    "type": "reaction",
    "reaction": {"message_id": "wamid.x", "emoji": "\N{THUMBS UP SIGN}"},
}
CALLBACK = {"override_callback_uri": "http://127.0.0.1:1/", "verify_token": "x"}
# (path, good body): as many string fields as possible.
BODIES: Sequence[tuple[str, Any]] = (
    *[(f"{N}/messages", case["body"]) for case in recorded("messages")],
    (f"{N}/messages", SENT_TEMPLATE),
    (f"{N}/messages", READ),
    (f"{N}/messages", REACTION),
    (N, {"pin": "123456"}),
    (N, {"webhook_configuration": CALLBACK}),
    (f"{N}/request_code", {"code_method": "SMS", "language": "en_US"}),
    (f"{N}/verify_code", {"code": "123456"}),
    (f"{N}/register", {"messaging_product": "whatsapp", "pin": "123456", "data_localization_region": "DE"}),
    (
        f"{N}/whatsapp_business_profile",
        {
            "messaging_product": "whatsapp",
            "about": "a",
            "address": "b",
            "description": "c",
            "email": "d@example.com",
            "profile_picture_handle": "e",
            "vertical": "RETAIL",
            "websites": ["https://example.com"],
        },
    ),
    (f"{W}/message_templates", TEMPLATE),
    (f"{W}/subscribed_apps", CALLBACK),
    (
        f"{A}/subscriptions",
        {
            "object": "whatsapp_business_account",
            "callback_url": "http://127.0.0.1:1/",
            "verify_token": "x",
            "fields": "messages",
            "include_values": "true",
        },
    ),
)
# Query parameters by method and path; `{media}` is the id of a file, `{template}` that of a template.
QUERIES: Sequence[tuple[str, str, Sequence[str]]] = (
    ("GET", N, ("fields", "access_token")),
    ("GET", f"{N}/whatsapp_business_profile", ("fields",)),
    ("GET", W, ("fields",)),
    ("GET", f"{W}/phone_numbers", ("fields", "limit", "after", "before", "sort", "filtering")),
    ("GET", f"{W}/subscribed_apps", ("fields",)),
    ("DELETE", f"{W}/subscribed_apps", ("x",)),
    (
        "GET",
        f"{W}/message_templates",
        (
            *("fields", "limit", "after", "before", "summary", "name", "name_or_content", "status", "category"),
            *("language", "quality_score", "name[]"),
        ),
    ),
    ("DELETE", f"{W}/message_templates", ("name", "hsm_id", "hsm_ids", "hsm_ids[]")),
    ("GET", "/v25.0/{template}", ("fields",)),
    ("GET", A, ("fields",)),
    ("GET", f"{A}/subscriptions", ("fields",)),
    ("DELETE", f"{A}/subscriptions", ("object", "fields")),
    ("GET", "/v25.0/debug_token", ("input_token",)),
    ("GET", "/v25.0/me", ("fields",)),
    ("GET", "/v25.0/me/businesses", ("fields", "limit", "after")),
    ("GET", "/v25.0/{media}", ("phone_number_id",)),
    ("DELETE", "/v25.0/{media}", ("phone_number_id",)),
    ("GET", "/whatsapp_business/attachments/", ("mid", "ext", "hash")),
)
# Parts of a path that a text replaces.
PATHS: Sequence[tuple[str, str]] = (
    ("GET", "/v25.0/{}"),
    ("POST", "/v25.0/{}"),
    ("DELETE", "/v25.0/{}"),
    ("GET", N + "/{}"),
    ("POST", N + "/{}"),
    ("GET", W + "/{}"),
    ("DELETE", A + "/{}"),
    ("POST", "/v25.0/{}/messages"),
    ("GET", "/v25.0/{}/message_templates"),
    ("GET", f"/{NUMBER}/{{}}"),
    ("GET", "/v{}.0/" + NUMBER),
)


def fields(described: Mapping[str, Any]) -> list[tuple[str, str, Any, StringLocation]]:
    """Return method, path, good body and place of each string field. Those of good bodies are there for each type.

    described: the OpenAPI document
    """
    found = {
        ("POST", path, good.get("type"), location): good
        for path, good in BODIES
        for location in string_locations.in_body(good)
    }
    for template, methods in described["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            path = filled(template)
            goods = [good for of, good in BODIES if of == path] or [{}]
            models = described["components"]["schemas"]
            for location in string_locations.in_schema(content.get("application/json", {}).get("schema", {}), models):
                best = max(goods, key=lambda good: depth(good, location))
                found.setdefault((method.upper(), path, best.get("type"), location), best)
    return [(method, path, good, location) for (method, path, _, location), good in found.items()]


def queries(described: Mapping[str, Any], ids: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield method, path and name of each query parameter."""
    found = [(method, path.format(**ids), name) for method, path, names in QUERIES for name in names]
    for template, methods in described["paths"].items():
        for method, operation in methods.items():
            for one in operation["parameters"]:
                if one["in"] == "query":
                    found.append((method.upper(), filled(template), one["name"]))
    yield from dict.fromkeys(found)


def parts_of_paths(described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield method and path with `{}` for each part of a path that a text replaces."""
    found = list(PATHS)
    for template, methods in described["paths"].items():
        for method, operation in methods.items():
            examples = {f"{{{one['name']}}}": one.get("example") for one in operation["parameters"]}
            parts = template.split("/")
            for location, part in enumerate(parts):
                if part in examples:
                    filled_in = [examples.get(other, other) for other in parts]
                    path = "/".join([*filled_in[:location], "{}", *filled_in[location + 1 :]])
                    found.append((method.upper(), f"/v25.0{path}"))
    yield from dict.fromkeys(found)


async def send(cloud: Cloud, method: str, path: str, **options: Any) -> httpx.Response:
    """Send one request, and check the format of the response."""
    started = time.process_time()
    response = await cloud.http.request(method, path, **options)
    named = f"{method} {path[:300]} {str(options)[:300]}: {response.status_code} {response.text[:300]}"
    assert time.process_time() - started < SOON, named
    assert response.status_code < 500, named
    # Clients resolve `..` in a path themselves.
    if not paths.claims(response.request.url.path):
        return response
    if response.status_code >= 400:
        error(response)
    else:
        check_headers(response, response.headers["facebook-api-version"])
        assert isinstance(json.loads(response.content), dict | list | bool), named
    return response


async def check_serves(cloud: Cloud) -> None:
    """Check that the API still serves its client."""
    assert (await cloud.send()).status_code == 200


@pytest.mark.parametrize("part", range(PARTS))
async def test_no_text_breaks_a_string_field(cloud: Cloud, is_long: bool, part: int) -> None:
    found = fields(await document(cloud))
    assert len(found) > 250
    for number, (method, path, good, location) in list(enumerate(found))[part::PARTS]:
        for text in share(number, is_long):
            await send(cloud, method, path, json=put(good, location, text))
    await check_serves(cloud)


@pytest.mark.parametrize("part", range(PARAMETER_PARTS))
async def test_no_text_breaks_a_query_parameter(cloud: Cloud, is_long: bool, part: int) -> None:
    created = await send(cloud, "POST", f"{W}/message_templates", json=TEMPLATE)
    file = {"file": ("a.png", PNG, "image/png")}
    uploaded = await send(cloud, "POST", f"{N}/media", data={"messaging_product": "whatsapp"}, files=file)
    ids = {"template": created.json()["id"], "media": uploaded.json()["id"]}
    found = list(queries(await document(cloud), ids))
    for number, (method, path, name) in list(enumerate(found))[part::PARAMETER_PARTS]:
        for text in share(number, is_long):
            await send(cloud, method, path, params={name: text})
    await check_serves(cloud)


async def test_no_text_breaks_a_path(cloud: Cloud, is_long: bool) -> None:
    for number, (method, path) in enumerate(parts_of_paths(await document(cloud))):
        for text in share(number, is_long):
            await send(cloud, method, path.format(quote(text, safe="")))
    await check_serves(cloud)


async def test_no_text_breaks_a_field_of_an_upload(cloud: Cloud, is_long: bool) -> None:
    for number, name in enumerate(("messaging_product", "type", "x", "file")):
        for text in share(number, is_long):
            data = {"messaging_product": "whatsapp", **({name: text} if name != "file" else {})}
            file = (text if name == "file" else "a.png", PNG, "image/png")
            await send(cloud, "POST", f"{N}/media", data=data, files={"file": file})
    await check_serves(cloud)
