"""200 hostile texts through every string field, query parameter and path of the API: no 5xx, always the API's format,
nothing else changes.

Fields are those of examples and those that the schemas allow. `make fuzz` puts all texts into each field, `make test`
an eighth of them, which differs from field to field.
"""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.webapp import message_cases, string_locations, test_malformed
from tests.webapp.conftest import PASSWORD, Served, basic
from tests.webapp.payloads import PAYLOADS, SHARES, share
from tests.webapp.string_locations import StringLocation, depth, put
from tests.webapp.test_malformed import Operation

# Maximum seconds of CPU time per request.
SOON = 2.0
# Number of tests that the fields are divided among, so that each takes a few seconds.
PARTS = 6
MESSAGES = ("contacts", "hsm", "interactive", "location", "media", "template")
KNOWN_HEADERS = {
    *("content-type", "content-length", "cache-control", "x-request-id", "retry-after", "allow", "location"),
    # After a text that became the password, logins are refused.
    "www-authenticate",
}


async def fields(api: Served) -> list[tuple[Operation, StringLocation]]:
    """Return the places of all string fields, each with an operation whose good body has most of the place.

    Logins come last, because they may change the password.
    """
    operations = await test_malformed.operations(api)
    models = (await api.http.get("/openapi.json")).json()["components"]["schemas"]
    messages = [case.values[0] for file in MESSAGES for case in message_cases.good(file)]
    goods = [*operations, *(Operation("POST", "/v1/messages", good) for good in messages)]
    found: dict[tuple[str, str, StringLocation], Operation] = {}
    for one in goods:
        for location in string_locations.in_body(one.good):
            found.setdefault((one.method, one.path, location), one)
    for one in operations:
        like = [other for other in goods if (other.method, other.path) == (one.method, one.path)]
        for location in string_locations.in_schema(one.schema, models):
            best = max(like, key=lambda other: depth(other.good, location))
            found.setdefault((one.method, one.path, location), best)
    places = [(one, location) for (_, _, location), one in found.items() if location]
    return sorted(places, key=lambda field: field[0].path == "/v1/users/login")


async def send(api: Served, method: str, path: str, **options: Any) -> httpx.Response:
    """Send one request, and check the format of the response."""
    begun = time.process_time()
    response = await api.http.request(method, path, **options)
    named = f"{method} {path[:300]} {str(options)[:300]}: {response.status_code} {response.text[:300]}"
    assert time.process_time() - begun < SOON, named
    # The response to an existing user name is 500, as in the On-Premises API.
    is_taken = response.status_code == 500 and response.json()["errors"][0]["code"] == 1014 and path == "/v1/users"
    assert response.status_code < 500 or is_taken, named
    assert set(response.headers) <= KNOWN_HEADERS, named
    if response.status_code >= 400:
        assert response.headers["content-type"] == "application/json", named
        assert response.json()["errors"], named
    return response


async def check_serves(api: Served) -> None:
    """Check that the API still works, and that no text has granted access or locked a user out."""
    assert (await api.http.get("/v1/users/admin")).status_code in (200, 401)
    response = await api.http.get("/health/live")
    assert response.status_code == 200
    assert (await api.http.post("/v1/users/login", headers=basic("admin", PASSWORD + "x"))).status_code in (401, 429)


def test_there_are_200_unique_payloads() -> None:
    assert len(PAYLOADS) == len(set(PAYLOADS)) == 200
    assert sorted(text for number in range(SHARES) for text in share(number, False)) == sorted(PAYLOADS)


@pytest.mark.parametrize("part", range(PARTS))
async def test_no_text_breaks_a_string_field(api: Served, is_long: bool, part: int) -> None:
    found = await fields(api)
    assert len(found) > 200
    for number, (operation, location) in list(enumerate(found))[part::PARTS]:
        for text in share(number, is_long):
            content = json.dumps(put(operation.good, location, text)).encode()
            response = await send(api, operation.method, operation.path, content=content, headers=operation.headers)
            assert not response.content or response.headers["content-type"] == "application/json"
    await check_serves(api)


async def test_no_text_breaks_a_parameter(api: Served, is_long: bool) -> None:
    document, number = (await api.http.get("/openapi.json")).json(), 0
    for template, methods in document["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            options = {"json": body["example"]} if body else {}
            parameters = operation.get("parameters", ())
            for tested in parameters:
                path = template
                for one in parameters:
                    if one["in"] == "path" and one is not tested:
                        path = path.replace(f"{{{one['name']}}}", one["example"])
                name, is_path = tested["name"], tested["in"] == "path"
                for text in share(number, is_long) if tested["in"] in ("path", "query") else ():
                    filled = path.replace(f"{{{name}}}", quote(text, safe="")) if is_path else path
                    await send(api, method.upper(), filled, **options, **({} if is_path else {"params": {name: text}}))
                number += 1
    assert number > 30
    await check_serves(api)
