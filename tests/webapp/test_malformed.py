"""Malformed bodies for every operation with a JSON body in the OpenAPI document: 4xx, quickly, in the API's
format."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psutil
import pytest

from tests.webapp import raw
from tests.webapp.conftest import PASSWORD, Served, basic, errors

# Maximum seconds for the response to one small request.
SOON = 2.0
DEEP = 1_000
DIGITS = "9" * 5_000
# Bytes: more than any body may have, and what the server may keep of it.
MUCH = 64 * 1024 * 1024
LITTLE = 24 * 1024 * 1024

# Invalid or unusable values, each put in the place of each value of a good body.
VALUES = {
    "nested": "[" * DEEP + "]" * DEEP,
    "nested and open": '{"a":' * DEEP,
    "not a number": "NaN",
    "infinite": "-Infinity",
    "a lone surrogate": r'"\ud800"',
    "surrogates in the wrong order": r'"\udc00\ud800"',
    "5,000 digits": DIGITS,
    "5,000 decimals": f"0.{DIGITS}e{DIGITS}",
    "a control character": '"\x01"',
    "a trailing comma": "1,",
    "a comment": "1 /* one */",
    "single quotes": "'a'",
}


class Operation:
    """Operation with a JSON body, with a good body."""

    def __init__(self, method: str, path: str, good: Any, schema: Any = None) -> None:
        """schema: JSON schema of the body; empty for none"""
        self.method, self.path, self.good, self.schema = method.upper(), path, good, schema or {}
        self.text = json.dumps(good)
        # Login requires a password. It reads the body before it checks that.
        self.headers = basic("admin", PASSWORD) if path == "/v1/users/login" else {}


async def operations(api: Served) -> list[Operation]:
    """Return all operations of the document, with the examples of their path parameters."""
    found = []
    document = (await api.http.get("/openapi.json")).json()
    for template, methods in document["paths"].items():
        for method, operation in methods.items():
            media = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if media is not None:
                path = template
                for parameter in operation.get("parameters", ()):
                    if parameter["in"] == "path":
                        path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
                found.append(Operation(method, path, media["example"], media["schema"]))
    assert len(found) >= 28
    return found


def with_each_value(good: Any, placed: str) -> Iterator[str]:
    """Yield the JSON text of `good` with the text `placed` instead of one of its values, for each value, and of
    all."""
    yield placed
    mark = "\N{PLACE OF INTEREST SIGN}"

    def places(value: Any) -> Iterator[Any]:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            for other in (mark, *places(inner)):
                copy = dict(value) if isinstance(value, dict) else list(value)
                copy[key] = other
                yield copy

    for marked in places(good):
        yield json.dumps(marked, ensure_ascii=False).replace(f'"{mark}"', placed)


async def refuse(api: Served, operation: Operation, content: bytes, **headers: str) -> None:
    begun = time.process_time()
    response = await api.http.request(
        operation.method, operation.path, content=content, headers={**operation.headers, **headers}
    )
    assert time.process_time() - begun < SOON, f"{operation.method} {operation.path}: {content[:200]!r}"
    assert 400 <= response.status_code < 500, f"{operation.method} {operation.path}: {content[:200]!r}"
    errors(response)


async def test_truncated_json_is_refused_by_every_operation(api: Served) -> None:
    for operation in await operations(api):
        whole = operation.text.encode()
        for end in range(1, len(whole)):
            await refuse(api, operation, whole[:end])


@pytest.mark.parametrize("name", VALUES)
async def test_values_that_are_not_json_are_refused_by_every_operation(api: Served, name: str) -> None:
    for operation in await operations(api):
        for text in with_each_value(operation.good, VALUES[name]):
            await refuse(api, operation, text.encode())


async def test_invalid_utf_8_is_refused_by_every_operation(api: Served) -> None:
    for operation in await operations(api):
        for text in with_each_value(operation.good, '"\N{PLACE OF INTEREST SIGN}"'):
            for wrong in (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"):
                await refuse(api, operation, text.encode().replace("\N{PLACE OF INTEREST SIGN}".encode(), wrong))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
async def test_other_encodings_are_refused_by_every_operation(api: Served, encoding: str) -> None:
    for operation in await operations(api):
        await refuse(api, operation, operation.text.encode(encoding))


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("application/x-www-form-urlencoded", b"to=15550110001&type=text"),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="to"\r\n\r\n1\r\n--x--\r\n'),
        ("application/xml", b"<to>15550110001</to>"),
        ("application/msgpack", b"\x81\xa2to\xa1"),
        ("application/json; charset=utf-7", b"+AHsAfQ-"),
    ],
)
async def test_bodies_of_other_formats_are_refused_by_every_operation(api: Served, kind: str, content: bytes) -> None:
    for operation in await operations(api):
        await refuse(api, operation, content, **{"Content-Type": kind})


async def test_json_is_accepted_under_any_content_type(api: Served) -> None:
    for operation in await operations(api):
        seen = set()
        for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded", "\xff", ""):
            headers = {name.encode(): value.encode() for name, value in operation.headers.items()}
            headers[b"Content-Type"] = kind.encode("latin-1")
            # JSON that no operation can use: another error than for a body that is not JSON.
            response = await api.http.request(operation.method, operation.path, content=b'"text"', headers=headers)
            seen.add((response.status_code, errors(response)[0]["code"]))
        assert seen <= {(400, 1009), (403, 1005), (404, 1006)}
        assert len(seen) == 1, operation.path


async def test_too_large_bodies_are_refused_by_their_content_length(served_api: Served) -> None:
    for operation in await operations(served_api):
        status, headers, payload = await raw.exchange(
            served_api.port, head(served_api, operation, f"Content-Length: {MUCH}")
        )
        assert status in (403, 404, 413)
        assert payload["errors"][0]["details"]
        assert headers["x-request-id"]


async def test_too_large_chunked_bodies_are_refused_and_use_no_memory(served_api: Served) -> None:
    async def endless() -> AsyncIterator[bytes]:
        # The body would end after 64 MiB, but no operation reads that far.
        for _ in range(MUCH // 65_536):
            yield b"10000\r\n" + b" " * 65_536 + b"\r\n"

    async def each() -> None:
        for operation in await operations(served_api):
            status, _, payload = await raw.stream(
                served_api.port, head(served_api, operation, "Transfer-Encoding: chunked"), endless()
            )
            assert status in (403, 404, 413), f"{operation.method} {operation.path}: {payload}"
            assert payload["errors"][0]["details"]

    await each()
    gc.collect()
    before = psutil.Process().memory_info().rss
    await each()
    gc.collect()
    assert psutil.Process().memory_info().rss - before < LITTLE


def head(api: Served, operation: Operation, length: str) -> bytes:
    """Return the head of a request.

    length: header line that describes the body.
    """
    token = operation.headers.get("Authorization", api.http.headers["Authorization"])
    lines = [f"{operation.method} {operation.path} HTTP/1.1", "Host: tests", f"Authorization: {token}", length]
    return "\r\n".join([*lines, "", ""]).encode()
