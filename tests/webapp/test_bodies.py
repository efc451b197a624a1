"""Bodies that are not JSON, or too large: always a 4xx in the API's format, quickly, and nothing is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import psutil
import pytest

from tests.webapp import raw
from tests.webapp.conftest import Served, body, check_headers, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.wire import core

GOOD = json.dumps(body("message_text")).encode()
MIB = 1024 * 1024


@pytest.fixture
def api(served_api: Served) -> Served:
    """Webapp over a real socket, for all tests of this module."""
    return served_api


async def post(api: Served, content: bytes, path: str = "/v1/messages") -> tuple[int, int]:
    response = await api.http.post(path, content=content, headers={"Content-Type": "application/json"})
    if response.status_code < 400:
        check_headers(response)
        return response.status_code, 0
    return code(response)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a brace", b"{"),
        ("no quotes", b"{to: 1}"),
        ("single quotes", b"{'to': '1'}"),
        ("a comma too many", b'{"to": "1",}'),
        ("two values", b"{} {}"),
        ("NaN", b'{"to": NaN}'),
        ("Infinity", b'{"to": Infinity}'),
        ("minus Infinity", b'{"to": -Infinity}'),
        ("a number beyond floats", b'{"to": 1e999}'),
        ("a lone surrogate", b'{"to": "15550110001", "text": {"body": "\\ud800"}}'),
        ("a surrogate the wrong way round", b'{"to": "15550110001", "text": {"body": "\\udc00\\ud800"}}'),
        ("a surrogate in UTF-8", b'{"to": "15550110001", "text": {"body": "\xed\xa0\x80"}}'),
        ("invalid UTF-8", b'{"to": "\xff\xfe"}'),
        ("UTF-16", '{"to": "1"}'.encode("utf-16")),
        ("a control character", b'{"to": "\x01"}'),
        ("a NUL", b"\x00"),
        ("5,000 digits", b'{"to": "15550110001", "ttl": ' + b"9" * 5000 + b"}"),
        ("5,000 digits after a point", b'{"to": "15550110001", "ttl": 0.' + b"9" * 5000 + b"e99999}"),
        ("1,000 arrays", b"[" * 1000 + b"]" * 1000),
        ("1,000 objects", b'{"a":' * 1000 + b"1" + b"}" * 1000),
        ("101 arrays", b"[" * 101 + b"]" * 101),
        (
            "101 objects beside a hundred arrays",
            b'{"to": [%s], "a":' % b",".join([b"[]"] * 100) + b'{"a":' * 100 + b"1" + b"}" * 101,
        ),
        ("100,000 arrays without an end", b"[" * 100_000),
        ("a form", b"to=15550110001&text=x"),
        ("XML", b"<message/>"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/contacts"])
async def test_unusable_json_gets_400(api: Served, coreapp: FakeCoreapp, path: str, name: str, content: bytes) -> None:
    assert await post(api, content, path) == (400, 1025)
    assert not coreapp.requests


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (rb'{"to": "\ud800"}', "a string in it has a lone surrogate (byte 14)"),
        (rb'{"to": "\ud800 and more text"}', "a string in it has a lone surrogate (byte 14)"),
        (rb'{"to": "\udc00\ud800"}', "a string in it has a lone surrogate (byte 14)"),
        (b'{"to": "1555', "it ends too early"),
        (b"{", "it ends too early"),
    ],
)
async def test_the_error_names_a_lone_surrogate(api: Served, content: bytes, words: str) -> None:
    response = await api.http.post("/v1/messages", content=content)
    assert errors(response)[0]["details"] == f"the body is not JSON: {words}"


async def test_json_nesting_is_accepted_up_to_a_depth_of_100(api: Served) -> None:
    for inner in (b"{}", b'{"a": 1}', b"[1]"):
        content = GOOD[:-1] + b', "unknown": ' + b"[" * 98 + inner + b"]" * 98 + b"}"
        assert await post(api, content) == (201, 0)
        assert await post(api, content.replace(b"[" * 98, b"[" * 99).replace(b"]" * 98, b"]" * 99)) == (400, 1025)


async def test_a_message_truncated_at_any_byte_is_refused(api: Served, coreapp: FakeCoreapp) -> None:
    for length in range(len(GOOD)):
        status, error = await post(api, GOOD[:length])
        assert (status, error) == (400, 1025 if length else 1008), GOOD[:length]
    assert not coreapp.requests


async def test_a_message_with_any_byte_changed_gets_201_or_400(api: Served) -> None:
    for position in range(len(GOOD)):
        for flip in (0x01, 0x20, 0x80, 0xFF):
            changed = bytearray(GOOD)
            changed[position] ^= flip
            status, _ = await post(api, bytes(changed))
            assert status in (201, 400), bytes(changed)


async def test_one_byte_order_mark_before_the_json_is_ignored(api: Served, coreapp: FakeCoreapp) -> None:
    assert await post(api, b"\xef\xbb\xbf" + GOOD) == (201, 0)
    assert len(coreapp.requested(core.AcceptMessage)) == 1
    assert await post(api, b"\xef\xbb\xbf" * 2 + GOOD) == (400, 1025)


async def test_an_empty_body_is_treated_as_an_empty_message(api: Served) -> None:
    for content in (b"", b"  \r\n", b"{}"):
        assert await post(api, content) == (400, 1008)


async def test_a_body_at_the_limit_is_accepted_and_one_byte_more_is_refused(api: Served) -> None:
    assert await post(api, GOOD + b" " * (MIB - len(GOOD))) == (201, 0)
    assert await post(api, GOOD + b" " * (MIB - len(GOOD) + 1)) == (413, 1025)


async def test_a_declared_length_over_the_limit_is_refused_before_the_body_is_read(api: Served) -> None:
    head = _head(api, f"Content-Length: {10 * MIB}")
    status, headers, payload = await raw.exchange(api.port, head)
    assert status == 413
    assert payload["errors"] == [
        {"code": 1025, "title": "Invalid request", "details": "the body is over the limit of 1048576 bytes"}
    ]
    assert headers["x-request-id"]
    absurd = _head(api, "Content-Length: 999999999999999999")
    assert (await raw.exchange(api.port, absurd))[0] == 413


async def test_a_client_that_sends_10_mb_before_reading_gets_its_response(api: Served) -> None:
    for content in (b"x" * (10 * MIB), _endless(10)):
        response = await api.http.post("/v1/messages", content=content)
        assert response.status_code == 413
        assert errors(response)
    assert (await api.send()).status_code == 201


async def test_a_chunked_body_is_refused_at_the_limit_and_uses_no_memory(api: Served) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    head = _head(api, "Transfer-Encoding: chunked")
    responses = await asyncio.gather(*(raw.stream(api.port, head, _chunked(_endless(200))) for _ in range(20)))
    assert {status for status, _, _ in responses} == {413}
    # Twenty bodies of 200 MB each, of which little more than 1 MiB was read.
    assert process.memory_info().rss - before < 100 * MIB


async def test_a_body_that_never_arrives_gets_400_after_the_timeout(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.http.bodies._TIMEOUT", 0.05)
    status, _, payload = await raw.exchange(api.port, _head(api, "Content-Length: 100"), b'{"to"')
    assert (status, payload["errors"][0]["code"]) == (400, 1025)
    assert "did not arrive" in payload["errors"][0]["details"]


async def test_a_response_lists_only_the_first_of_many_invalid_fields(api: Served) -> None:
    response = await api.http.patch("/v1/settings/application", json={"media": {"auto_download": ["x"] * 100_000}})
    assert code(response) == (400, 1009)
    assert len(response.content) < 10_000


def _head(api: Served, extra: str) -> bytes:
    authorization = api.http.headers["Authorization"]
    return f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n{extra}\r\n\r\n".encode()


async def _endless(mebibytes: int) -> AsyncIterator[bytes]:
    for _ in range(mebibytes):
        yield b"x" * MIB


async def _chunked(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield b"%x\r\n%b\r\n" % (len(chunk), chunk)
    yield b"0\r\n\r\n"


@pytest.mark.parametrize("number", [b"18446744073709551616", b"-9223372036854775809", b"9" * 4000])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/contacts"])
async def test_a_number_beyond_64_bits_gets_400(api: Served, coreapp: FakeCoreapp, path: str, number: bytes) -> None:
    good = GOOD[:-1] if path == "/v1/messages" else b'{"contacts": ["+15550110001"]'
    assert await post(api, good + b', "unknown": ' + number + b"}", path) == (400, 1025)
    assert not coreapp.requests
