"""A thousand connections at once to a Webapp over TLS, from an address that has logged in: none is reset."""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.client import Business
from harness.installation import Installation

COUNT = 1_000


@pytest.fixture
def trust() -> ssl.SSLContext:
    """Context of a client that accepts the certificate that the Webapp generates."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.fixture
async def business(tmp_path: Path, trust: ssl.SSLContext) -> AsyncIterator[Business]:
    """Business that is logged in to a Webapp over TLS; no other process runs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    async with Installation(tmp_path, None, {"TIDINGS_API_TLS": "1"}) as installation:
        await installation.start(["webapp"])
        client = Business(installation.api_port, tls=trust)
        await client.log_in()
        yield client


async def burst(port: int, trust: ssl.SSLContext, head: str) -> Counter[str]:
    """Send one request on each of 1,000 new connections; return the outcomes: the status, or the name of the error."""
    request = f"{head}\r\nHost: 127.0.0.1\r\n\r\n".encode()

    async def one() -> str:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        except OSError as error:
            return type(error).__name__
        try:
            writer.write(request)
            response = await reader.readuntil(b"\r\n\r\n")
            status = response.split()[1].decode()
            assert status == "200" or b"retry-after: " in response.lower()
            return status
        except (OSError, asyncio.IncompleteReadError) as error:
            return type(error).__name__
        finally:
            writer.transport.abort()

    async with asyncio.timeout(120):
        return Counter(await asyncio.gather(*(one() for _ in range(COUNT))))


@pytest.mark.whole_system
async def test_1000_tls_connections_at_once_with_a_token_get_200_or_503(
    business: Business, trust: ssl.SSLContext
) -> None:
    head = f"GET /v1/users/admin HTTP/1.1\r\nAuthorization: Bearer {business.token}"
    outcomes = await burst(business.port, trust, head)
    assert set(outcomes) <= {"200", "503"}
    assert outcomes["200"] >= COUNT // 10


@pytest.mark.whole_system
async def test_1000_tls_connections_at_once_without_a_token_get_a_response(
    business: Business, trust: ssl.SSLContext
) -> None:
    """Most of them find no slot within 10 s, since each costs the address tokens that are not refunded."""
    outcomes = await burst(business.port, trust, "GET /health/live HTTP/1.1")
    assert set(outcomes) <= {"200", "429", "503"}
    assert outcomes["503"] > 0
