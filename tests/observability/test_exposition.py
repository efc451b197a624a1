"""Metrics listener: text for each request, over TLS to other machines, and little memory for idle connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.authority import Authority
from tidings.config.env import SettingsError
from tidings.observability import exposition
from tidings.observability.exposition import Exposition
from tidings.secrets.api_key import NO_KEY, ApiKey

KEY = ApiKey("an API key of the tests")


@pytest.fixture
async def served() -> AsyncIterator[Exposition]:
    made = await Exposition.start("127.0.0.1", 0)
    yield made
    made.close()


async def send_request(served: Exposition, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(request)
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_a_get_returns_the_metrics_and_closes_the_connection(served: Exposition) -> None:
    head, _, text = (await send_request(served, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-length: %d\r\n" % len(text) in head
    assert b"# TYPE python_info gauge" in text
    assert (await send_request(served, b"HEAD / HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")
    assert (await send_request(served, b"POST / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405 ")


async def test_a_head_that_is_too_long_is_refused_and_one_that_does_not_come_ends_the_connection(
    served: Exposition, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await send_request(served, b"GET /" + b"x" * 10_000)).startswith(b"HTTP/1.1 400 ")
    monkeypatch.setattr(exposition, "SECONDS", 0.05)
    hasty = await Exposition.start("127.0.0.1", 0)
    assert await send_request(hasty, b"GET / HTTP/1.1\r\n") == b""
    hasty.close()


async def test_a_connection_beyond_the_limit_is_closed_and_the_others_are_served(
    served: Exposition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposition._Protocol, "most", 2)
    first = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
    assert await send_request(served, b"GET / HTTP/1.1\r\n\r\n") == b""
    for reader, writer in first:
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_an_address_in_use_raises_settingserror(served: Exposition) -> None:
    with pytest.raises(SettingsError, match=r"TIDINGS_COREAPP_METRICS_ADDRESS 127.0.0.1:\d+: .*in use"):
        await Exposition.start("127.0.0.1", served.port)


@pytest.mark.parametrize(
    ("key", "given", "status"),
    [
        (NO_KEY, b"Apikey ", b"401"),
        (KEY, b"Apikey wrong", b"401"),
        (KEY, b"Apikey " + KEY.encode(), b"200"),
    ],
)
async def test_metrics_beyond_loopback_require_the_api_key(key: ApiKey, given: bytes, status: bytes) -> None:
    served = await Exposition.start("0.0.0.0", 0, key=key, plaintext=True)
    try:
        response = await send_request(
            served, b"GET /metrics HTTP/1.1\r\nHost: x\r\nauthorization: " + given + b"\r\n\r\n"
        )
    finally:
        served.close()
    assert response.split()[1] == status


async def test_health_probes_need_no_api_key() -> None:
    found = {"database": "ok", "network": "ok"}

    async def ready() -> dict[str, str]:
        return found

    served = await Exposition.start("0.0.0.0", 0, key=KEY, ready=ready, plaintext=True)
    live = await send_request(served, b"GET /health/live HTTP/1.1\r\n\r\n")
    assert live.startswith(b"HTTP/1.1 200 OK\r\n")
    assert live.endswith(b'\r\n\r\n{"status":"live"}')
    response = await send_request(served, b"GET /health/ready?x HTTP/1.1\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 200 OK\r\n")
    found["network"] = "away"
    response = await send_request(served, b"GET /health/ready HTTP/1.1\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 503 ")
    assert response.endswith(b'{"status":"not ready","database":"ok","network":"away"}')
    assert (await send_request(served, b"GET /health HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
    served.close()


async def read_over_tls(served: Exposition, context: ssl.SSLContext, name: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=context, server_hostname=name)
    writer.write(b"GET /metrics HTTP/1.1\r\nAuthorization: Apikey " + KEY.encode() + b"\r\n\r\n")
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_metrics_beyond_loopback_are_served_only_over_tls() -> None:
    served = await Exposition.start("0.0.0.0", 0, key=KEY)
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    try:
        request = b"GET /metrics HTTP/1.1\r\nAuthorization: Apikey " + KEY.encode() + b"\r\n\r\n"
        assert not (await send_request(served, request)).startswith(b"HTTP/")
        assert (await read_over_tls(served, unchecked, "metrics")).startswith(b"HTTP/1.1 200 ")
    finally:
        served.close()


async def test_the_installation_s_certificate_is_served_and_verifiable(tmp_path: Path) -> None:
    files = Authority().files(tmp_path, "coreapp", "coreapp.example")
    served = await Exposition.start("0.0.0.0", 0, key=KEY, files=files)
    checked = ssl.create_default_context(cafile=files.authorities)
    try:
        assert (await read_over_tls(served, checked, "coreapp.example")).startswith(b"HTTP/1.1 200 ")
    finally:
        served.close()


async def test_connections_without_a_tls_handshake_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "SECONDS", 0.05)
    served = await Exposition.start("0.0.0.0", 0, key=KEY)
    try:
        assert await send_request(served, b"") == b""
    finally:
        served.close()
