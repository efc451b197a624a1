"""200 hostile texts through every string field of the API: no 5xx, always the API's format, nothing else changes."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.webapp import message_cases, test_malformed
from tests.webapp.conftest import PASSWORD, Served, basic
from tests.webapp.payloads import PAYLOADS
from tests.webapp.test_malformed import Operation

# Maximum seconds of CPU time per request.
SOON = 2.0
# Number of tests that the fields are divided among, so that each takes a few seconds.
PARTS = 16
MESSAGES = ("contacts", "hsm", "interactive", "location", "media", "template")


def string_fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all strings in a body."""
    if isinstance(value, str):
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from string_fields(inner, (*path, key))


def placed(value: Any, path: tuple[Any, ...], text: str) -> Any:
    """Return a copy of the value with this text at a path."""
    changed = copy.deepcopy(value)
    *steps, last = path
    node = changed
    for step in steps:
        node = node[step]
    node[last] = text
    return changed


async def operations(api: Served) -> list[Operation]:
    """Return all operations with a JSON body, which has as many string fields as possible.

    Logins come last, because they may change the password.
    """
    found = await test_malformed.operations(api)
    messages = [case.values[0] for file in MESSAGES for case in message_cases.good(file)]
    found += [Operation("POST", "/v1/messages", good) for good in messages]
    return sorted(found, key=lambda operation: operation.path == "/v1/users/login")


async def send(api: Served, operation: Operation, body: Any) -> None:
    begun = time.process_time()
    content = json.dumps(body).encode()
    answer = await api.http.request(operation.method, operation.path, content=content, headers=operation.headers)
    named = f"{operation.method} {operation.path}: {content[:300]!r}: {answer.status_code} {answer.text[:300]}"
    assert time.process_time() - begun < SOON, named
    # The response to an existing user name is 500, as in the On-Premises API.
    is_taken = (
        answer.status_code == 500 and answer.json()["errors"][0]["code"] == 1014 and operation.path == "/v1/users"
    )
    assert answer.status_code < 500 or is_taken, named
    assert set(answer.headers) <= KNOWN_HEADERS, named
    if answer.content:
        assert answer.headers["content-type"] == "application/json", named
        assert answer.status_code < 400 or answer.json()["errors"], named


KNOWN_HEADERS = {"content-type", "content-length", "cache-control", "x-request-id", "retry-after", "allow", "location"}


def test_there_are_200_unique_payloads() -> None:
    assert len(PAYLOADS) == len(set(PAYLOADS)) == 200


@pytest.mark.parametrize("part", range(PARTS))
async def test_no_text_breaks_a_string_field(api: Served, part: int) -> None:
    count = 0
    seen: set[tuple[str, str, tuple[Any, ...]]] = set()
    for operation in await operations(api):
        for path in string_fields(operation.good):
            field = (operation.method, operation.path, tuple("#" if isinstance(s, int) else s for s in path))
            if field in seen or not path:
                continue
            seen.add(field)
            if len(seen) % PARTS != part:
                continue
            for text in PAYLOADS:
                await send(api, operation, placed(operation.good, path, text))
            count += 1
    assert count > 9
    # The API still works, and no text has granted access or locked a user out.
    assert (await api.http.get("/v1/users/admin")).status_code in (200, 401)
    answer = await api.http.get("/health/live")
    assert answer.status_code == 200
    assert (await api.http.post("/v1/users/login", headers=basic("admin", PASSWORD + "x"))).status_code in (401, 429)
